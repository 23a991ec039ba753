"""The command line against a real controller: what people see, what programs read, and how it ends."""

import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from service import VERSION
from service.actions import tokens
from service.actions.context import Context
from service.commands import local, watching
from tests.service.api.attempts import failed
from tests.service.commands.shell import LIMIT_S, Node, Shell
from tests.service.live import Live


def test_a_catalog_is_registered_and_listed(catalog: Path, shell: Shell) -> None:
    assert {build["name"] for build in shell.json("builds", "list")} == {"v0.18.0", "v0.19.1"}
    assert [recipe["name"] for recipe in shell.json("recipes", "list")] == ["small"]
    assert [workload["name"] for workload in shell.json("workloads", "list")] == ["tiny"]
    lines = shell("builds", "list").splitlines()
    assert lines[0].split() == ["name", "version", "kind", "source", "sha256", "registered"]
    assert len(lines) == 3
    assert "\x1b" not in shell.out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[[builds]\n", "not valid TOML"),
        ("[[recipe]]\n", "it may hold"),
        ("[[recipes]]\nname = 'x'\n", "has no [[builds]]"),
        ("builds = 3\n", "must be a list of tables"),
    ],
)
def test_a_file_that_makes_no_sense_is_named(live: Live, shell: Shell, tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(content)
    shell("builds", "register", str(file), expect=2)
    assert said in shell.err
    assert "wrong.toml" in shell.err


def test_a_missing_file_is_named(live: Live, shell: Shell) -> None:
    shell("builds", "register", "no/such.toml", expect=2)
    assert "no/such.toml can't be read" in shell.err


def test_bad_fields_are_listed_with_what_is_allowed(live: Live, shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text('[[workloads]]\nname = "x"\nprefix_tokens = 0\n')
    shell("workloads", "register", str(file), expect=2)
    assert "[invalid_input]" in shell.err
    assert "body.prefix_tokens: input should be greater than or equal to 1, got 0 (allowed: >= 1)" in shell.err


def test_an_unknown_build_names_the_nearest_and_how_to_list(catalog: Path, shell: Shell) -> None:
    shell("compare", "v0.18.0", "v0.19.2", expect=2)
    assert "did you mean v0.19.1" in shell.err
    assert "[unknown_build]" in shell.err
    assert "'backslide builds list'" in shell.err


def test_without_a_controller_it_says_how_to_start_one(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    with local.bind("127.0.0.1", 0) as listener:
        url = local.address(listener)
    monkeypatch.setenv("BACKSLIDE_URL", url)
    shell("builds", "list", expect=3)
    assert url in shell.err
    assert "backslide serve" in shell.err


def test_a_missing_or_low_token_is_told_apart(
    live: Live, ctx: Context, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BACKSLIDE_TOKEN")
    shell("runners", "enrolment-token", expect=2)
    assert "[token_missing]" in shell.err
    assert "backslide token create" in shell.err
    monkeypatch.setenv("BACKSLIDE_TOKEN", tokens.create_user_token(ctx, "low", "viewer"))
    shell("runners", "enrolment-token", expect=2)
    assert "allowed: operator, admin" in shell.err


@pytest.mark.parametrize("url", ["nonsense", "ftp://127.0.0.1", "http://"])
def test_an_address_that_is_none_is_refused(shell: Shell, url: str) -> None:
    shell("--url", url, "builds", "list", expect=2)
    assert "BACKSLIDE_URL" in shell.err


def test_wrong_usage_exits_2(shell: Shell) -> None:
    shell("requests", "submit", "only-one", expect=2)
    shell("nothing", expect=2)
    assert VERSION in shell("--version")


def test_a_measured_request_is_shown_compared_and_watched(measured: dict[str, Any], shell: Shell, live: Live) -> None:
    request_id = measured["id"]
    assert measured["state"] == "done"
    text = shell("requests", "watch", request_id)
    assert len([line for line in text.splitlines() if "TPOT p50" in line]) == 4
    assert "3 of 3 repetitions usable" in text
    view = shell.json("requests", "comparison", request_id)
    assert view["verdict"] in ("worse", "unknown")
    for command in (("requests", "comparison", request_id), ("compare", "v0.18.0", "v0.19.1")):
        text = shell(*command)
        assert text.splitlines()[0] == shell.json(*command)["sentence"]
        assert re.search(r"TPOT p50 +ms +2\.\d\d ", text)
        assert f"{live.url}/compare/v0.18.0...v0.19.1?metric=tpot_p50_ms" in text
    assert request_id in shell("requests", "list")
    assert shell("requests", "show", request_id).count("done") >= 4


def test_launches_are_listed_and_shown(measured: dict[str, Any], shell: Shell) -> None:
    launches = shell.json("launches", "list", "--request", measured["id"])
    assert len(launches) == 4
    assert len(shell.json("launches", "list", "--build", "v0.18.0")) == 2
    assert launches[0]["id"] in shell("launches", "list")
    text = shell("launches", "show", launches[0]["id"])
    assert "pid 4711" in text
    assert launches[0]["repetitions"][0]["raw_log"] in text
    assert shell.json("launches", "show", launches[0]["id"]) == launches[0]


def test_compare_measures_first_when_asked(node: Node, shell: Shell) -> None:
    worker = threading.Thread(target=node.measure, args=(4,))
    worker.start()
    text = shell("compare", "v0.18.0", "v0.19.1", "--measure", "--blocks", "1")
    worker.join(LIMIT_S)
    assert text.splitlines()[0].startswith("Measuring as req_")
    assert "measuring" in text or "done" in text
    assert "head / base" in text
    request_id = shell("compare", "v0.18.0", "v0.19.1", "--measure", "--no-wait", "--blocks", "1").strip()
    assert shell.json("requests", "show", request_id)["state"] == "open"


def test_a_failed_request_exits_1_and_says_why(node: Node, shell: Shell) -> None:
    request_id = shell.json("requests", "submit", "v0.18.0", "v0.19.1", "--blocks", "1")["id"]
    attempt = node.lease()
    assert attempt.result(failed(attempt.fence)).is_success
    shell("requests", "watch", request_id, expect=1)
    assert "spec_invalid in start: no such flag" in shell.out
    assert "ended failed" in shell.err


def test_a_cancelled_request_ends_the_watch(node: Node, shell: Shell) -> None:
    request_id = shell.json("requests", "submit", "v0.18.0", "v0.19.1", "--blocks", "1")["id"]
    assert "cancelled" in shell("requests", "cancel", request_id)
    shell("requests", "watch", request_id, expect=1)
    assert "ended cancelled" in shell.err


def test_ctrl_c_leaves_the_request_running_and_says_so(
    node: Node, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    request_id = shell.json("requests", "submit", "v0.18.0", "v0.19.1", "--blocks", "1")["id"]

    def interrupted(_watch: watching.Watch) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(watching.Watch, "update", interrupted)
    shell("requests", "watch", request_id, expect=1)
    assert f"{request_id} goes on" in shell.err
    assert shell.json("requests", "show", request_id)["state"] == "open"


def test_recompute_finds_the_stored_numbers_again(measured: dict[str, Any], shell: Shell) -> None:
    launch_id = measured["jobs"][0]["launch_id"]
    report = shell.json("recompute", launch_id)
    assert report["differences"] == []
    assert report["values"] > 40
    assert shell("recompute", launch_id).startswith("Equal: ")


def test_recompute_shows_a_number_that_differs(
    measured: dict[str, Any], shell: Shell, ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqlmodel import col, update

    from service.store.tables import Repetition

    launch = shell.json("launches", "show", measured["jobs"][0]["launch_id"])
    forged = {**launch["repetitions"][1]["metrics"], "tpot_p50_ms": 1.0}
    with ctx.store.write() as session:
        where = (col(Repetition.launch_id) == launch["id"], col(Repetition.number) == 2)
        session.exec(update(Repetition).where(*where).values(metrics=forged))
    shell("recompute", launch["id"], expect=1)
    assert "repetition 2 tpot_p50_ms: stored 1.0, recomputed" in shell.out
    assert "1 stored values differ" in shell.err


def test_recompute_takes_raw_logs_from_files(
    measured: dict[str, Any], shell: Shell, ctx: Context, tmp_path: Path
) -> None:
    launch = shell.json("launches", "show", measured["jobs"][0]["launch_id"])
    raw = ctx.blobs.path(launch["repetitions"][0]["raw_log"])
    assert launch["id"] in shell("recompute", "--file", str(raw))
    (tmp_path / "other").write_bytes(b"other")
    shell("recompute", launch["id"], "--file", str(tmp_path / "other"), expect=2)
    assert "no repetition's raw log" in shell.err
    shell("recompute", expect=2)


def test_runners_are_listed_drained_and_revoked(node: Node, shell: Shell) -> None:
    (runner,) = shell.json("runners", "list")
    assert runner["name"] in shell("runners", "list")
    assert shell.json("runners", "drain", "node1")["drain_requested"] is True
    assert shell.json("runners", "drain", runner["id"], "--undo")["drain_requested"] is False
    assert "revoked" in shell("runners", "revoke", "node1")
    shell("runners", "drain", "nobody", expect=2)
    assert "[not_found]" in shell.err


def test_tokens_are_made_listed_and_revoked_beside_the_controller(
    live: Live, shell: Shell, monkeypatch: pytest.MonkeyPatch, ctx: Context
) -> None:
    monkeypatch.setenv("BACKSLIDE_DATA_DIR", str(ctx.settings.data_dir))
    made = shell.json("token", "create", "--name", "ops", "--role", "operator")
    monkeypatch.setenv("BACKSLIDE_TOKEN", made["token"])
    assert shell("runners", "enrolment-token").startswith("bke_")
    assert made["token"] not in shell("token", "list")
    assert made["token"][-4:] in shell.out
    shell("token", "revoke", "ops")
    shell("runners", "enrolment-token", expect=2)
    assert "[token_invalid]" in shell.err
    shell("token", "create", "--name", "x", "--role", "boss", expect=2)
    assert "viewer, submitter, operator, admin" in shell.err


def test_a_terminal_is_not_steered_by_what_a_runner_says(node: Node, shell: Shell) -> None:
    request_id = shell.json("requests", "submit", "v0.18.0", "v0.19.1", "--blocks", "1")["id"]
    attempt = node.lease()
    assert attempt.result(failed(attempt.fence, "\x1b[2J[red]gone[/red]\r\n")).is_success
    text = shell("requests", "show", request_id)
    assert "\x1b" not in text
    assert "[red]gone[/red]" in text


def test_doctor_shows_no_secret(live: Live, shell: Shell, monkeypatch: pytest.MonkeyPatch, ctx: Context) -> None:
    monkeypatch.setenv("BACKSLIDE_DATA_DIR", str(ctx.settings.data_dir))
    monkeypatch.setenv("BACKSLIDE_SECRET", "swordfish" * 5)
    text = shell("doctor")
    assert "swordfish" not in text
    assert re.search(r"database +ok", text)
    assert re.search(r"controller +ok", text)
    monkeypatch.setenv("BACKSLIDE_DATABASE_URL", "postgresql://me:swordfish@127.0.0.1:1/none")
    shell("doctor", expect=1)
    assert "swordfish" not in shell.out
    assert "database" in shell.err


def test_a_client_command_loads_neither_database_nor_numerics() -> None:
    code = (
        "import sys, service.cli; service.cli.command_line();"
        "print(sorted({'sqlalchemy', 'numpy', 'fastapi', 'scipy', 'uvicorn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=LIMIT_S)
    assert done.stdout.strip() == "[]"


def test_a_request_that_no_runner_can_serve_says_so(catalog: Path, shell: Shell) -> None:
    said = shell("requests", "submit", "v0.18.0", "v0.19.1", "--hardware", "mi350x")
    assert "no runner that is online takes simulated builds on hardware mi350x (no runner is online)" in said


def test_a_request_that_a_runner_can_serve_is_not_said_to_wait(measured: dict[str, Any], shell: Shell) -> None:
    assert "It waits" not in shell("requests", "submit", "v0.18.0", "v0.19.1")
