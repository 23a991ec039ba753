"""``backslide bisect`` against a real controller: asked for, shown, held, let go on, taken back, reported."""

from pathlib import Path
from typing import Any

import pytest

from tests.service.commands.shell import Node, Shell
from tests.service.live import Live

START = ("bisect", "start", "v0.18.0", "v0.19.1")


@pytest.fixture
def asked(node: Node, shell: Shell) -> dict[str, Any]:
    """A bisect of the two builds that are registered; nothing of it was measured."""
    found: dict[str, Any] = shell.json(*START, "--no-watch", "--max-launches", "12", "--seed", "7")
    return found


def test_start_takes_the_only_recipe_and_workload_and_prints_the_id_alone(catalog: Path, shell: Shell) -> None:
    printed = shell(*START, "--no-watch").strip()
    assert printed.startswith("bis_")
    shown = shell.json("bisect", "show", printed)
    assert (shown["cell"]["recipe"], shown["cell"]["workload"]) == ("small", "tiny")
    assert [one["name"] for one in shown["lineup"]] == ["v0.18.0", "v0.19.1"]
    assert shown["aim"]["max_launches"] == 40


def test_what_is_asked_for_is_what_was_said(asked: dict[str, Any]) -> None:
    assert (asked["aim"]["max_launches"], asked["seed"], asked["metric"]) == (12, 7, "tpot_p50_ms")


def test_list_and_show_name_it(asked: dict[str, Any], shell: Shell) -> None:
    assert asked["id"] in shell("bisect", "list")
    shown = shell("bisect", "show", asked["id"])
    assert "which of 2 versions from v0.18.0 to v0.19.1 made TPOT p50 worse" in shown
    assert f"/bisects/{asked['id']}" in shown


def test_pause_resume_and_cancel_say_what_it_is_now(asked: dict[str, Any], shell: Shell) -> None:
    assert "paused" in shell("bisect", "pause", asked["id"])
    assert "paused" not in shell("bisect", "resume", asked["id"])
    assert "cancel" in shell("bisect", "cancel", asked["id"])
    shell("bisect", "watch", asked["id"], expect=1)
    assert "ended cancelled" in shell.err


def test_it_is_followed_to_its_answer_explained_and_reported(
    asked: dict[str, Any], node: Node, shell: Shell, tmp_path: Path
) -> None:
    node.measure(12)  # A B B A of the ends, and two blocks of the proof: with two versions nothing is left to search
    lines = shell("bisect", "watch", asked["id"])
    assert "confirmed" in lines
    assert "first bad" in lines
    shown = shell.json("bisect", "show", asked["id"])
    assert (shown["finding"]["last_good"], shown["finding"]["first_bad"]) == ("v0.18.0", "v0.19.1")
    log = shell("bisect", "explain", asked["id"])
    assert log.count("launched for") == 12
    assert "STEP 1, ends" in log
    file = tmp_path / "report.md"
    shell("bisect", "report", asked["id"], "-o", str(file))
    assert file.read_text() == shell("bisect", "report", asked["id"])
    assert "# Performance: TPOT p50" in file.read_text()


def test_a_report_that_can_t_be_written_says_so(asked: dict[str, Any], shell: Shell, tmp_path: Path) -> None:
    shell("bisect", "report", asked["id"], "-o", str(tmp_path / "missing" / "report.md"), expect=2)
    assert "can't be written" in shell.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("bisect", "start", "v0.19.1", "v0.18.0", "--no-watch"), "v0.19.1"),
        (("bisect", "start", "v0.18.0", "v9", "--no-watch"), "unknown_build"),
        (("bisect", "start", "v0.18.0", "v0.19.1", "--no-watch", "--metric", "beauty"), "unknown_metric"),
        (("bisect", "show", "bis_none"), "not_found"),
    ],
)
def test_bad_input_is_named(catalog: Path, shell: Shell, arguments: tuple[str, ...], said: str) -> None:
    shell(*arguments, expect=2)
    assert said in shell.err


def test_a_bisect_is_refused_without_a_token(
    live: Live, catalog: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BACKSLIDE_TOKEN")
    shell(*START, "--no-watch", expect=2)
    assert "token_missing" in shell.err
