"""The agent as a process, against a controller that remembers: what it does with leases, signals and trouble."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from runners.settings import RunnerSettings
from service.contract.failures import FailureClass
from service.contract.lease import AttemptState, Directive, Lease, ReleaseReason
from service.contract.upload import Completed, Failed
from tests.runners.conftest import LONG, SHORT
from tests.runners.fake_controller import FakeController, Memory, Refusal
from tests.runners.runner_process import RunnerProcess

MakeLease = Callable[..., Lease]


def _measuring(lease: Lease) -> Callable[[Memory], bool]:
    return lambda memory: any(
        attempt_id == lease.attempt_id and renewal.state is AttemptState.MEASURING
        for attempt_id, renewal in memory.renewals
    )


def _asked_again(memory: Memory, count: int) -> bool:
    return len({request.request_id for request in memory.lease_requests}) > count


def test_a_lease_becomes_a_launch_with_everything_that_proves_it(
    runner: RunnerProcess, controller: FakeController, make_lease: MakeLease
) -> None:
    lease = make_lease()
    controller.offer(lease)
    runner.start()
    result = controller.result_of(lease)
    assert isinstance(result.body, Completed), (result.body, runner.text())
    launch = result.body.launch
    assert launch.identity.version == "0.18.0"
    assert [repetition.number for repetition in launch.repetitions] == [1, 2, 3]
    assert [step.name for step in launch.steps] == ["prepare", "start", "identify", "load", "stop"]
    names = {ref.name for ref in result.artifacts}
    assert {"server.log", "steps.log"} <= names
    for ref in result.artifacts:
        assert len(controller.memory.artifacts[(lease.attempt_id, ref.name)]) == ref.size_bytes
    hashes = {ref.sha256 for ref in result.artifacts}
    assert {launch.warm_log, launch.identity.server_log, *(r.raw_log for r in launch.repetitions)} <= hashes
    states = [renewal.state for attempt_id, renewal in controller.memory.renewals]
    assert states[0] is AttemptState.LEASED
    assert states == sorted(states, key=list(AttemptState).index)
    assert AttemptState.MEASURING in states
    assert controller.memory.order[-1] == ("result", lease.attempt_id), "nothing is said of an attempt after its result"
    assert b"identify" in controller.memory.logs[lease.attempt_id]
    assert runner.servers() == []


def test_two_slots_measure_at_once(
    settings: RunnerSettings, controller: FakeController, make_lease: MakeLease, tmp_path: Path
) -> None:
    runner = RunnerProcess(settings, controller, tmp_path, slots=2)
    leases = [make_lease(workload=LONG), make_lease(workload=LONG)]
    try:
        controller.offer(*leases)
        runner.start()
        for lease in leases:
            controller.wait_until(_measuring(lease), "both measure")
        assert not controller.memory.results, "one had ended before the other measured"
        assert {lease.slot for lease in controller.memory.given.values()} == {0, 1}
        controller.change(lambda memory: setattr(memory, "directive", Directive.CANCEL))
        controller.wait_until(lambda memory: len(memory.releases) == 2, "both are given back")
    finally:
        runner.end()


def test_nothing_is_started_before_the_first_renewal_succeeded(
    runner: RunnerProcess, controller: FakeController, make_lease: MakeLease
) -> None:
    lease = make_lease()
    controller.change(lambda memory: memory.failing.update(renew=Refusal(503, "busy")))
    controller.offer(lease)
    runner.start()
    controller.wait_until(lambda memory: lease.token in memory.tokens, "a first try")
    assert runner.servers() == []
    assert "starting" not in (runner.settings.state_dir / "journal.jsonl").read_text()
    controller.change(lambda memory: memory.failing.clear())
    assert isinstance(controller.result_of(lease).body, Completed)


def test_a_lease_whose_answer_was_lost_is_asked_for_again_under_the_same_id(
    runner: RunnerProcess, controller: FakeController, make_lease: MakeLease
) -> None:
    lease = make_lease()
    controller.change(lambda memory: setattr(memory, "lose_answers", 2))
    controller.offer(lease)
    runner.start()
    controller.result_of(lease)
    first = [request.request_id for request in controller.memory.lease_requests[:3]]
    assert len(set(first)) == 1


def test_cancel_ends_the_server_and_gives_the_attempt_back(
    runner: RunnerProcess, controller: FakeController, make_lease: MakeLease
) -> None:
    lease = make_lease(workload=LONG)
    controller.offer(lease)
    runner.start()
    controller.wait_until(_measuring(lease), "it measures")
    assert runner.servers() != []
    controller.change(lambda memory: setattr(memory, "directive", Directive.CANCEL))
    controller.wait_until(lambda memory: lease.attempt_id in memory.releases, "the release")
    assert controller.memory.releases[lease.attempt_id].reason is ReleaseReason.CANCELLED
    assert runner.servers() == []
    assert lease.attempt_id not in controller.memory.results


def test_a_lost_lease_ends_the_server_and_nothing_is_handed_in(
    runner: RunnerProcess, controller: FakeController, make_lease: MakeLease
) -> None:
    lost, following = make_lease(workload=LONG), make_lease()
    controller.offer(lost)
    runner.start()
    controller.wait_until(_measuring(lost), "it measures")
    controller.change(lambda memory: memory.lost.add(lost.attempt_id))
    controller.offer(following)
    controller.result_of(following)
    assert lost.attempt_id not in controller.memory.results
    assert lost.attempt_id not in controller.memory.releases
    assert (runner.settings.attempts_dir / lost.attempt_id / "server.log").exists(), "local files are kept"
    assert runner.servers() == []


def test_a_lease_that_can_not_be_renewed_ends_the_server_and_what_is_measured_comes_late(
    runner: RunnerProcess, controller: FakeController, make_lease: MakeLease
) -> None:
    lease = make_lease(workload=SHORT.model_copy(update={"repetitions": 100}), ttl_s=3.0)
    controller.offer(lease)
    runner.start()
    controller.wait_until(
        lambda memory: any(renewal.detail.startswith("repetition 2") for _, renewal in memory.renewals),
        "a finished repetition",
    )
    away = Refusal(503, "busy")
    controller.change(lambda memory: memory.failing.update(renew=away, log=away, result=away, artifacts=away))
    result_path = runner.settings.attempts_dir / lease.attempt_id / "result.json"
    runner.until(result_path.exists, "the result in the spool")
    assert [p for p in runner.servers() if "serve" in p.cmdline()] == []
    controller.change(lambda memory: memory.failing.clear())
    result = controller.result_of(lease)
    assert isinstance(result.body, Failed)
    assert result.body.failure.failure_class is FailureClass.RUNNER_LOST
    assert "rep-1.raw" in {ref.name for ref in result.artifacts}, "what was measured is handed in too"


def test_sigterm_finishes_what_runs_and_takes_nothing_new(
    runner: RunnerProcess, controller: FakeController, make_lease: MakeLease
) -> None:
    lease = make_lease()
    controller.offer(lease)
    runner.start()
    controller.wait_until(_measuring(lease), "it measures")
    runner.send(signal.SIGTERM)
    controller.wait_until(lambda memory: memory.heartbeats[-1].draining, "the controller is told")
    controller.offer(make_lease())
    assert runner.wait() == 0, runner.text()
    assert isinstance(controller.memory.results[lease.attempt_id].body, Completed)
    assert len(controller.memory.given) == 1
    assert runner.servers() == []


def test_ctrl_c_on_a_terminal_does_not_disturb_the_measurement(
    runner: RunnerProcess, controller: FakeController, make_lease: MakeLease
) -> None:
    lease = make_lease()
    controller.offer(lease)
    runner.start()
    controller.wait_until(_measuring(lease), "it measures")
    runner.press_ctrl_c()
    assert runner.wait() == 0, runner.text()
    assert isinstance(controller.memory.results[lease.attempt_id].body, Completed), controller.memory.results


def test_a_second_signal_gives_the_attempt_back_at_once(
    runner: RunnerProcess, controller: FakeController, make_lease: MakeLease
) -> None:
    lease = make_lease(workload=LONG)
    controller.offer(lease)
    runner.start()
    controller.wait_until(_measuring(lease), "it measures")
    runner.send(signal.SIGINT)
    controller.wait_until(lambda memory: memory.heartbeats[-1].draining, "the controller is told")
    runner.send(signal.SIGINT)
    assert runner.wait() == 0, runner.text()
    assert controller.memory.releases[lease.attempt_id].reason is ReleaseReason.SHUTDOWN
    assert runner.servers() == []


def test_an_idle_runner_gives_back_a_lease_that_was_on_its_way_and_ends(
    runner: RunnerProcess, controller: FakeController, make_lease: MakeLease
) -> None:
    lease = make_lease()
    controller.change(lambda memory: setattr(memory, "withhold_answers", 1))
    controller.offer(lease)
    runner.start()
    controller.wait_until(lambda memory: memory.given, "the lease is given")
    runner.send(signal.SIGTERM)
    assert runner.wait() == 0, runner.text()
    assert controller.memory.releases[lease.attempt_id].reason is ReleaseReason.DRAIN
    assert controller.memory.renewals == []


def test_a_controller_that_drains_the_runner_gets_no_question_until_it_stops(
    runner: RunnerProcess, controller: FakeController, make_lease: MakeLease
) -> None:
    controller.change(lambda memory: setattr(memory, "runner_directive", Directive.DRAIN))
    runner.start()
    controller.wait_until(lambda memory: len(memory.heartbeats) > 3, "it beats")
    asked = len({request.request_id for request in controller.memory.lease_requests})
    assert asked <= 1, "only the question that crossed the first heartbeat"
    controller.change(lambda memory: setattr(memory, "runner_directive", Directive.CONTINUE))
    controller.wait_until(lambda memory: _asked_again(memory, asked), "it asks again")


@pytest.mark.parametrize(
    ("call", "status", "code"),
    [("lease", 401, "token_invalid"), ("heartbeat", 426, "protocol_unsupported"), ("lease", 409, "conflict")],
)
def test_a_refused_runner_says_why_and_ends_with_status_1(
    runner: RunnerProcess, controller: FakeController, call: str, status: int, code: str
) -> None:
    controller.change(lambda memory: memory.failing.update({call: Refusal(status, code)}))
    runner.start()
    assert runner.wait() == 1
    assert code in runner.text()
    assert "Traceback" not in runner.text()


def test_a_runner_with_a_full_disk_takes_no_work_and_says_so(
    settings: RunnerSettings, controller: FakeController, make_lease: MakeLease, tmp_path: Path
) -> None:
    runner = RunnerProcess(settings.model_copy(update={"keep_free_bytes": 10**18}), controller, tmp_path)
    controller.offer(make_lease())
    runner.start()
    controller.wait_until(lambda memory: len(memory.heartbeats) > 3, "it beats")
    runner.send(signal.SIGTERM)
    assert runner.wait() == 0
    assert "taking no work" in runner.text()
    assert controller.memory.lease_requests == []


def test_a_controller_whose_disk_is_full_gets_the_result_when_there_is_room_again(
    runner: RunnerProcess, controller: FakeController, make_lease: MakeLease
) -> None:
    lease = make_lease()
    controller.change(lambda memory: memory.failing.update(artifacts=Refusal(507, "disk_full", retryable=True)))
    controller.offer(lease)
    runner.start()
    controller.wait_until(
        lambda memory: any(renewal.state is AttemptState.UPLOADING for _, renewal in memory.renewals), "it uploads"
    )
    controller.change(lambda memory: memory.failing.clear())
    assert isinstance(controller.result_of(lease).body, Completed)
