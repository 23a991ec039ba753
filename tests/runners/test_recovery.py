"""kill -9 of a runner at every stage: the next life ends what it left, hands in what is finished, reports the rest."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from runners.clock import SystemClock
from runners.journal import Journal
from runners.launch.sessions import TAG_ATTEMPT, TAG_RUNNER, look_up, machine_boot_id
from runners.recovery import find_leftovers, sweep
from runners.settings import RunnerSettings
from service.contract import ids
from service.contract.failures import FailureClass
from service.contract.lease import AttemptState, Lease
from service.contract.upload import Completed, Failed
from tests.runners.conftest import LONG
from tests.runners.fake_controller import LIMIT_S, FakeController, Memory, Refusal
from tests.runners.runner_process import RunnerProcess

MakeLease = Callable[..., Lease]
Sleeper = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def sleeper() -> Iterator[Sleeper]:
    """Starts processes that say a line once they run, then wait to be ended."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*, env: dict[str, str] | None = None, code: str = "", session: bool = True) -> "subprocess.Popen[bytes]":
        program = f"{code}\nimport signal; print('up', flush=True); signal.pause()"
        process = subprocess.Popen(
            [sys.executable, "-c", program], env=env or {}, stdout=subprocess.PIPE, start_new_session=session
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait(LIMIT_S)
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
def runner_id() -> str:
    """Another one every time: two test runs on one machine must not end each other's processes."""
    return ids.new_id("run")


def _is_measuring(memory: Memory) -> bool:
    return any(renewal.state is AttemptState.MEASURING for _, renewal in memory.renewals)


def test_a_runner_killed_in_mid_launch_leaves_nothing_after_its_restart_and_reports_the_attempt(
    runner: RunnerProcess, controller: FakeController, make_lease: MakeLease, sleeper: Sleeper
) -> None:
    lease, following = make_lease(workload=LONG), make_lease()
    controller.offer(lease)
    runner.start()
    controller.wait_until(_is_measuring, "it measures")
    runner.kill()
    orphans = [process for process in runner.servers() if "images.simulated" in process.cmdline()]
    assert orphans, "the server outlives its runner, so there is something to clean up"
    look_alike = sleeper(env={TAG_RUNNER: "run_somebody_else", TAG_ATTEMPT: lease.attempt_id})
    controller.offer(following)
    runner.start()
    result = controller.result_of(lease)
    assert isinstance(result.body, Failed)
    assert result.body.failure.failure_class is FailureClass.RUNNER_LOST
    assert isinstance(controller.result_of(following).body, Completed), runner.text()
    assert [process for process in orphans if process.is_running()] == []
    assert look_alike.poll() is None
    runner.send(signal.SIGTERM)
    assert runner.wait() == 0
    assert runner.servers() == []
    assert not (runner.settings.attempts_dir / lease.attempt_id).exists()


def test_a_runner_killed_while_the_server_starts_leaves_nothing_either(
    runner: RunnerProcess, controller: FakeController, make_lease: MakeLease, profiles: object
) -> None:
    profile = runner.settings.profiles_dir / "slow.toml"
    text = (runner.settings.profiles_dir / "v0.18.0.toml").read_text()
    profile.write_text(text.replace("start_s = 0.2", "start_s = 3000"))
    lease = make_lease(profile="slow")
    controller.offer(lease)
    runner.start()
    controller.wait_until(lambda memory: any(r.step == "identify" for _, r in memory.renewals), "it starts a server")
    runner.kill()
    assert runner.servers() != []
    runner.start()
    assert isinstance(controller.result_of(lease).body, Failed)
    assert [process for process in runner.servers() if "images.simulated" in process.cmdline()] == []


def test_a_finished_result_survives_kill_9_and_is_handed_in_once_the_controller_is_back(
    runner: RunnerProcess, controller: FakeController, make_lease: MakeLease
) -> None:
    lease = make_lease()
    away = Refusal(503, "busy")
    controller.change(lambda memory: memory.failing.update(result=away, artifacts=away))
    controller.offer(lease)
    runner.start()
    controller.wait_until(
        lambda memory: any(renewal.state is AttemptState.UPLOADING for _, renewal in memory.renewals), "it uploads"
    )
    runner.kill()
    controller.change(lambda memory: memory.failing.clear())
    runner.start()
    result = controller.result_of(lease)
    assert isinstance(result.body, Completed)
    stored = controller.memory.artifacts
    assert all((lease.attempt_id, ref.name) in stored for ref in result.artifacts)
    runner.send(signal.SIGTERM)
    assert runner.wait() == 0
    assert not (runner.settings.attempts_dir / lease.attempt_id).exists(), "removed after the acknowledgement"


def test_a_controller_that_goes_away_in_mid_launch_gets_the_result_when_it_returns(
    settings: RunnerSettings, make_lease: MakeLease, tmp_path: object
) -> None:
    lease = make_lease()
    with FakeController() as first:
        runner = RunnerProcess(settings, first, settings.state_dir.parent)
        first.offer(lease)
        runner.start()
        first.wait_until(_is_measuring, "it measures")
        port, given = first.port, dict(first.memory.given)
    try:
        runner.until(lambda: "trying again" in runner.text(), "a visible line")
        second = FakeController(port)
        second.memory.given.update(given)
        with second:
            assert isinstance(second.result_of(lease).body, Completed), runner.text()
    finally:
        runner.end()


def _journal(settings: RunnerSettings) -> Journal:
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    return Journal.open(settings.state_dir / "journal.jsonl", SystemClock())


def test_a_sweep_ends_the_recorded_session_though_its_leader_is_gone_and_its_members_hide_their_tags(
    settings: RunnerSettings, sleeper: Sleeper, runner_id: str
) -> None:
    # The leader starts a member with a bare environment, as vLLM's engine core has after it set its title.
    code = (
        "import subprocess, sys; c = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'],"
        " env={}, stdout=subprocess.DEVNULL); print(c.pid, flush=True)"
    )
    program = f"{code}\nimport signal; signal.pause()"
    leader = subprocess.Popen([sys.executable, "-c", program], env={}, stdout=subprocess.PIPE, start_new_session=True)
    assert leader.stdout is not None
    with leader, leader.stdout:
        member_pid = int(leader.stdout.readline())
        member, seen = look_up(member_pid), look_up(leader.pid)
        assert member is not None
        assert seen is not None
        journal = _journal(settings)
        journal.leased("att_1", 0)
        journal.spawned("att_1", seen.record, machine_boot_id())
        journal.members("att_1", (seen.record, member.record))
        leader.kill()
        leader.wait(LIMIT_S)
        assert find_leftovers(journal, runner_id) == [member.record]
        swept = sweep(journal, runner_id, SystemClock())
        assert (swept.ended, swept.left) == ([member.record], [])
        assert look_up(member_pid) is None


def test_a_sweep_ends_a_tagged_process_that_the_journal_does_not_know(
    settings: RunnerSettings, sleeper: Sleeper, runner_id: str
) -> None:
    tagged = sleeper(env={TAG_RUNNER: runner_id})
    swept = sweep(_journal(settings), runner_id, SystemClock())
    assert [record.pid for record in swept.ended] == [tagged.pid]
    assert tagged.wait(LIMIT_S) == -signal.SIGKILL


@pytest.mark.parametrize("difference", ["start", "boot", "tag"])
def test_a_sweep_never_touches_a_process_that_is_not_the_recorded_one(
    settings: RunnerSettings, sleeper: Sleeper, runner_id: str, difference: str
) -> None:
    stranger = sleeper(env={TAG_RUNNER: runner_id + "1"} if difference == "tag" else {})
    seen = look_up(stranger.pid)
    assert seen is not None
    journal = _journal(settings)
    journal.leased("att_1", 0)
    if difference != "tag":
        start_ticks = seen.record.start_ticks - (difference == "start")
        boot_id = "another boot" if difference == "boot" else machine_boot_id()
        journal.spawned("att_1", type(seen.record)(stranger.pid, start_ticks), boot_id)
    swept = sweep(journal, runner_id, SystemClock())
    assert swept.ended == []
    assert stranger.poll() is None
