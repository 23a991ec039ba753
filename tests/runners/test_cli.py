"""``backslide-runner`` as people and scripts use it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from runners.clock import SystemClock
from runners.identity import load_identity, locked
from runners.journal import Journal
from runners.launch.sessions import TAG_RUNNER
from runners.settings import RunnerSettings
from service.contract.builds import BuildKind
from service.contract.lease import Lease
from tests.runners.fake_controller import LIMIT_S, FakeController, Refusal
from tests.runners.runner_process import ROOT, RunnerProcess, environment

Done = subprocess.CompletedProcess[str]
Command = Callable[..., Done]


@pytest.fixture
def command(settings: RunnerSettings, tmp_path: Path) -> Command:
    def run(*words: str, **variables: str) -> Done:
        return subprocess.run(
            [sys.executable, "-m", "runners.cli", *words],
            env={**environment(settings), **variables},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    return run


def _enrol(command: Command, controller: FakeController, *more: str) -> Done:
    return command("enrol", "--controller", controller.url, "--token", "bke_1", "--name", "node-1", *more)


def test_enrolment_stores_id_and_token_for_the_user_only(
    command: Command, controller: FakeController, settings: RunnerSettings
) -> None:
    done = _enrol(command, controller, "--slots", "2", "--hardware", "simulated", "--build-kind", "simulated")
    assert done.returncode == 0, done.stderr
    (request,) = controller.memory.enrolments
    assert (request.name, request.slots, request.hardware) == ("node-1", 2, ["simulated"])
    assert request.build_kinds == [BuildKind.SIMULATED]
    assert controller.memory.tokens == {"bke_1"}
    identity = load_identity(settings.state_dir)
    assert (identity.token, identity.slots, identity.controller) == ("bkr_fake", 2, controller.url)
    assert (settings.state_dir / "identity.json").stat().st_mode & 0o777 == 0o600
    assert settings.state_dir.stat().st_mode & 0o777 == 0o700
    assert "bkr_fake" not in done.stdout + done.stderr


def test_a_second_enrolment_needs_to_be_asked_for(command: Command, controller: FakeController) -> None:
    assert _enrol(command, controller).returncode == 0
    again = _enrol(command, controller)
    assert again.returncode == 2
    assert "--replace" in again.stderr
    assert _enrol(command, controller, "--replace").returncode == 0
    assert len(controller.memory.enrolments) == 2


def test_a_refused_enrolment_says_the_code_and_stores_nothing(
    command: Command, controller: FakeController, settings: RunnerSettings
) -> None:
    controller.change(lambda memory: memory.failing.update(enrol=Refusal(401, "token_invalid")))
    done = _enrol(command, controller)
    assert done.returncode == 1
    assert done.stderr.startswith("error: token_invalid")
    assert not (settings.state_dir / "identity.json").exists()


@pytest.mark.parametrize("words", [["--name", "bad name"], ["--name", "x", "--slots", "0"]])
def test_bad_input_is_status_2_and_names_the_field(command: Command, words: list[str]) -> None:
    done = command("enrol", "--controller", "http://127.0.0.1:1", "--token", "bke_1", *words)
    assert done.returncode == 2
    assert words[-2].removeprefix("--") in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["run", "status", "sweep"])
def test_a_runner_that_is_not_enrolled_is_told_how(command: Command, name: str) -> None:
    done = command(name)
    assert done.returncode == 2
    assert "backslide-runner enrol" in done.stderr


def test_bad_settings_are_said_by_name(command: Command) -> None:
    done = command("run", BACKSLIDE_RUNNER_STALL_S="-1")
    assert done.returncode == 2
    assert "STALL_S" in done.stderr


def test_one_state_directory_serves_one_runner(
    command: Command, runner: RunnerProcess, settings: RunnerSettings
) -> None:
    with locked(settings.state_dir):
        for name in ("run", "sweep"):
            done = command(name)
            assert done.returncode == 2
            assert "another runner is running" in done.stderr
        assert json.loads(command("status", "--json").stdout)["running"] is True
    assert json.loads(command("status", "--json").stdout)["running"] is False


def test_status_shows_what_an_earlier_life_left_and_sweep_ends_it(
    command: Command, runner: RunnerProcess, settings: RunnerSettings, make_lease: Callable[..., Lease]
) -> None:
    Journal.open(settings.state_dir / "journal.jsonl", SystemClock()).leased("att_1", 0)
    left = subprocess.Popen(["sleep", "600"], env={TAG_RUNNER: runner.runner_id}, start_new_session=True)
    try:
        found = json.loads(command("status", "--json").stdout)
        assert found["leftover_pids"] == [left.pid]
        assert found["open_attempts"] == [{"attempt_id": "att_1", "slot": 0, "stage": "leased"}]
        assert "token" not in found["runner"]
        assert f"pid {left.pid}" in command("status").stdout
        swept = command("sweep")
        assert (swept.returncode, swept.stdout) == (0, "ended 1 processes\n")
        assert left.wait(LIMIT_S) < 0
        assert command("sweep").stdout == "ended 0 processes\n"
    finally:
        left.kill()
        left.wait(LIMIT_S)


def test_the_runner_loads_neither_the_web_framework_nor_the_database_nor_the_catalog() -> None:
    program = (
        "import sys, runners.cli;"
        "heavy = {'fastapi', 'starlette', 'sqlalchemy', 'sqlmodel', 'scipy', 'images'} & set(sys.modules);"
        "ours = {n for n in sys.modules if n.startswith('service.') and n.split('.')[1] not in ('contract', 'ruler')};"
        "print(sorted(heavy | ours))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("name", "value"), [("BACKSLIDE_RUNNER_HARDWARE", "simulated"), ("BACKSLIDE_RUNNER_SLOTS", "foo")]
)
def test_a_setting_that_makes_no_sense_is_named_in_one_line(tmp_path: Path, name: str, value: str) -> None:
    environment = {**os.environ, "BACKSLIDE_RUNNER_STATE_DIR": str(tmp_path), name: value}
    command = [sys.executable, "-m", "runners.cli", "run"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert name.removeprefix("BACKSLIDE_RUNNER_").lower() in done.stderr.lower()
    assert "Traceback" not in done.stderr
    assert "errors.pydantic.dev" not in done.stderr
