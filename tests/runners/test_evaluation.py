"""The step evaluate, as a runner makes it: a score beside the launch, or none, and never at the launch's cost."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from runners.evaluate.examination import RESULTS, SAMPLES
from service.contract.failures import FailureClass
from service.contract.lease import AttemptState, Directive, EvaluationOrder, Lease
from service.contract.upload import Completed, Scored, Unscored
from service.domain.answers import mark
from tests.runners.evaluate.conftest import lm_eval_python as lm_eval_python
from tests.runners.fake_controller import FakeController, Memory
from tests.runners.runner_process import RunnerProcess

MakeLease = Callable[..., Lease]
PYTHON = "BACKSLIDE_RUNNER_LM_EVAL_PYTHON"


@pytest.fixture
def asked(make_lease: MakeLease) -> Lease:
    return make_lease(evaluation=EvaluationOrder(limit=20))


@pytest.fixture
def endless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the Python that has lm-eval: a program that never ends by itself."""
    program = tmp_path / "endless"
    program.write_text("#!/bin/sh\ntrap '' INT\nwhile :; do sleep 600; done\n")
    program.chmod(0o755)
    monkeypatch.setenv(PYTHON, str(program))


def launch_of(controller: FakeController, lease: Lease, runner: RunnerProcess) -> Completed:
    body = controller.result_of(lease).body
    assert isinstance(body, Completed), (body, runner.text())
    assert len(body.launch.repetitions) == 3
    return body


def evaluating(lease: Lease) -> Callable[[Memory], bool]:
    return lambda memory: any(
        attempt_id == lease.attempt_id and renewal.state is AttemptState.EVALUATING
        for attempt_id, renewal in memory.renewals
    )


def test_a_launch_that_is_asked_has_a_score_and_the_answers_behind_it(
    runner: RunnerProcess,
    controller: FakeController,
    asked: Lease,
    lm_eval_python: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(PYTHON, str(lm_eval_python))
    controller.offer(asked)
    runner.start()
    launch = launch_of(controller, asked, runner).launch
    assert [step.name for step in launch.steps] == ["prepare", "start", "identify", "load", "evaluate", "stop"]
    found = launch.evaluation
    assert isinstance(found, Scored), found
    assert (found.n, found.failed, found.label) == (20, 0, "gsm8k-like (simulated)")
    files = {name for attempt_id, name in controller.memory.artifacts if attempt_id == asked.attempt_id}
    assert {SAMPLES, RESULTS, "gsm8k.log", "gsm8k-task.yaml"} <= files
    marks = mark(controller.memory.artifacts[(asked.attempt_id, SAMPLES)], found.n)
    assert marks.strict.count("1") >= 12
    states = [renewal.state for _, renewal in controller.memory.renewals]
    assert AttemptState.EVALUATING in states
    assert states == sorted(states, key=list(AttemptState).index)
    assert runner.servers() == []


def test_without_lm_eval_there_is_no_score_and_a_line_that_says_what_to_do(
    runner: RunnerProcess, controller: FakeController, asked: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PYTHON, str(Path(sys.executable).resolve()))  # the system's own, outside of any environment
    controller.offer(asked)
    runner.start()
    found = launch_of(controller, asked, runner).launch.evaluation
    assert isinstance(found, Unscored)
    assert found.failure.failure_class is FailureClass.EVALUATION
    assert "pip install 'lm-eval[api]" in found.failure.message


def test_nobody_is_asked_unless_the_lease_says_so(
    runner: RunnerProcess, controller: FakeController, make_lease: MakeLease, endless: None
) -> None:
    lease = make_lease()
    controller.offer(lease)
    runner.start()
    assert launch_of(controller, lease, runner).launch.evaluation is None


def test_an_evaluation_beyond_its_time_limit_costs_the_score_only(
    runner: RunnerProcess,
    controller: FakeController,
    asked: Lease,
    endless: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BACKSLIDE_RUNNER_EVALUATE_LIMIT_S", "0.5")
    controller.offer(asked)
    runner.start()
    found = launch_of(controller, asked, runner).launch.evaluation
    assert isinstance(found, Unscored)
    assert (found.failure.failure_class, found.failure.step) == (FailureClass.TIMEOUT_STEP, "evaluate")
    assert runner.servers() == []


def test_a_server_that_dies_while_it_is_asked_costs_the_score_only(
    runner: RunnerProcess, controller: FakeController, asked: Lease, endless: None
) -> None:
    controller.offer(asked)
    runner.start()
    controller.wait_until(evaluating(asked), "it is asked")
    for process in runner.servers():
        if "images.simulated" in process.cmdline():
            process.kill()
    found = launch_of(controller, asked, runner).launch.evaluation
    assert isinstance(found, Unscored)
    assert found.failure.failure_class is FailureClass.SERVER_CRASH
    assert runner.servers() == []


def test_a_cancel_while_it_is_asked_ends_everything(
    runner: RunnerProcess, controller: FakeController, asked: Lease, endless: None
) -> None:
    controller.offer(asked)
    runner.start()
    controller.wait_until(evaluating(asked), "it is asked")
    controller.change(lambda memory: setattr(memory, "directive", Directive.CANCEL))
    controller.wait_until(lambda memory: asked.attempt_id in memory.releases, "the release")
    assert runner.servers() == []
    assert asked.attempt_id not in controller.memory.results


def test_what_a_killed_runner_left_asking_is_ended_by_its_next_life(
    runner: RunnerProcess, controller: FakeController, asked: Lease, endless: None
) -> None:
    controller.offer(asked)
    runner.start()
    controller.wait_until(evaluating(asked), "it is asked")
    runner.until(lambda: any("endless" in " ".join(one.cmdline()) for one in runner.servers()), "the asking process")
    runner.kill()
    assert runner.servers() != []
    runner.start()
    runner.until(lambda: runner.servers() == [], "nothing of the earlier life")


@pytest.mark.parametrize("words", [["--gsm8k", "missing.jsonl", "--gsm8k-shots", "s"], ["--gsm8k-shots", "s"]])
def test_questions_that_can_not_be_used_are_refused_when_the_runner_starts(
    runner: RunnerProcess, words: list[str]
) -> None:
    done = runner.run_once(*words)
    assert done.returncode == 2
    assert "missing.jsonl can't be read" in done.stderr or "--gsm8k" in done.stderr
