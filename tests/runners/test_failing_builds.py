"""Builds that can't be measured: each ends with its failure class and a message that says why, and leaves nothing."""

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Iterator

import pytest

from runners.agent import Agent
from runners.clock import SystemClock
from runners.identity import RunnerIdentity
from runners.journal import Journal
from runners.launch.process import free_port
from runners.load.client import run_load
from runners.load.plan import LoadPlan, LoadResult
from runners.measurement import Load
from runners.settings import RunnerSettings
from runners.spool import SpoolEntry
from service.contract import ids
from service.contract.builds import BuildKind, SimulatedSource
from service.contract.failures import Failure, FailureClass
from service.contract.lease import Lease
from service.contract.upload import Completed, Failed, Result
from tests.runners.conftest import LONG
from tests.runners.fake_controller import LIMIT_S, FakeController, Memory

MakeLease = Callable[..., Lease]
RunLease = Callable[..., Result]


@pytest.fixture
def run_lease(settings: RunnerSettings, controller: FakeController) -> RunLease:
    """Runs an agent in this process until it has handed in the result of one lease."""

    def run(lease: Lease, port: Callable[[], int] = free_port, load: Load = run_load, **changes: object) -> Result:
        settings.state_dir.mkdir(parents=True, exist_ok=True)
        identity = RunnerIdentity(
            runner_id=ids.new_id("run"),
            token="bkr_test",
            controller=controller.url,
            name="test",
            slots=1,
            hardware=["simulated"],
            build_kinds=[BuildKind.SIMULATED],
        )
        controller.offer(lease)

        async def work() -> None:
            agent = Agent(settings.model_copy(update=changes), identity, SystemClock(), load, port)
            running = asyncio.ensure_future(agent.run())
            await asyncio.to_thread(controller.result_of, lease)
            os.kill(os.getpid(), 15)  # as an operator ends it
            assert await asyncio.wait_for(running, LIMIT_S) == 0

        asyncio.run(work())
        return controller.memory.results[lease.attempt_id]

    return run


def _failure(result: Result) -> Failure:
    assert isinstance(result.body, Failed), result
    return result.body.failure


def _profile(settings: RunnerSettings, name: str, *extra: str, **changes: str) -> str:
    """Write a changed copy of v0.18.0 under another name."""
    lines = (settings.profiles_dir / "v0.18.0.toml").read_text().splitlines()
    for key, value in changes.items():
        lines = [f"{key} = {value}" if line.startswith(f"{key} ") else line for line in lines]
    (settings.profiles_dir / f"{name}.toml").write_text("\n".join([*lines, *extra]) + "\n")
    return name


def test_a_server_that_ends_before_it_is_ready_is_reported_with_its_last_words(
    run_lease: RunLease, make_lease: MakeLease, settings: RunnerSettings
) -> None:
    name = _profile(settings, "broken", "[start_failure]", 'message = "no kernel image fits"', "after_s = 0.1")
    failure = _failure(run_lease(make_lease(profile=name)))
    assert (failure.failure_class, failure.step) == (FailureClass.SERVER_START, "identify")
    assert "no kernel image fits" in failure.message
    assert "exit status 1" in failure.message


def test_a_server_that_never_becomes_ready_is_ended_at_the_time_limit(
    run_lease: RunLease, make_lease: MakeLease, settings: RunnerSettings
) -> None:
    lease = make_lease(profile=_profile(settings, "slow", start_s="3000"))
    recipe = lease.recipe.model_copy(update={"ready_timeout_s": 2.0})
    result = run_lease(lease.model_copy(update={"recipe": recipe}))
    failure = _failure(result)
    assert (failure.failure_class, failure.step) == (FailureClass.TIMEOUT_STEP, "identify")
    assert "limit of 2 s" in failure.message
    assert "server.log" in {ref.name for ref in result.artifacts}


def test_a_server_that_dies_under_load_is_a_crash_and_what_was_finished_is_kept(
    run_lease: RunLease, make_lease: MakeLease, settings: RunnerSettings
) -> None:
    # 1 proof, 2 of priming, 4 of warm-up and 8 of the first repetition come before.
    name = _profile(settings, "crash", "[faults.crash_at_request_n]", "at_request = 20")
    result = run_lease(make_lease(profile=name))
    failure = _failure(result)
    assert (failure.failure_class, failure.step) == (FailureClass.SERVER_CRASH, "load"), failure.message
    assert "exit status" in failure.message
    assert {"warm.raw", "rep-1.raw", "server.log"} <= {ref.name for ref in result.artifacts}


def test_an_unknown_argument_is_reported_with_what_the_server_says_about_it(
    run_lease: RunLease, make_lease: MakeLease
) -> None:
    lease = make_lease()
    recipe = lease.recipe.model_copy(update={"args": ["--no-such-argument"]})
    failure = _failure(run_lease(lease.model_copy(update={"recipe": recipe})))
    assert failure.failure_class is FailureClass.SERVER_START
    assert "--no-such-argument" in failure.message


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (SimulatedSource(profile="v0.18.0", sha256="0" * 64), "has the SHA-256"),
        (SimulatedSource(profile="v9.9.9", sha256="0" * 64), "can't be read"),
    ],
    ids=["another file", "no file"],
)
def test_a_profile_that_is_not_the_registered_one_is_refused(
    run_lease: RunLease, make_lease: MakeLease, source: SimulatedSource, says: str
) -> None:
    lease = make_lease()
    build = lease.build.model_copy(update={"source": source})
    failure = _failure(run_lease(lease.model_copy(update={"build": build})))
    assert (failure.failure_class, failure.step) == (FailureClass.SPEC_INVALID, "prepare")
    assert says in failure.message


def test_a_server_that_reports_another_version_is_not_measured(run_lease: RunLease, make_lease: MakeLease) -> None:
    lease = make_lease()
    build = lease.build.model_copy(update={"version": "v0.19.1"})
    failure = _failure(run_lease(lease.model_copy(update={"build": build})))
    assert failure.failure_class is FailureClass.SERVER_START
    assert "'0.18.0'" in failure.message
    assert "0.19.1" in failure.message


def test_a_full_disk_is_reported_before_anything_is_started(
    run_lease: RunLease, make_lease: MakeLease, settings: RunnerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Agent, "_is_full", lambda self: False)  # the disk fills up after the lease was taken
    failure = _failure(run_lease(make_lease(), keep_free_bytes=10**18))
    assert (failure.failure_class, failure.step) == (FailureClass.DISK_FULL, "prepare")
    assert "BACKSLIDE_RUNNER_KEEP_FREE_BYTES" in failure.message


def _no_room(*args: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_disk_that_fills_up_in_the_middle_is_disk_full_and_what_is_there_is_handed_in(
    run_lease: RunLease, make_lease: MakeLease
) -> None:
    async def no_load(plan: LoadPlan, on_progress: object) -> LoadResult:
        raise OSError(errno.ENOSPC, "No space left on device", plan.out_dir)

    result = run_lease(make_lease(), load=no_load)
    failure = _failure(result)
    assert (failure.failure_class, failure.step) == (FailureClass.DISK_FULL, "load")
    assert "server.log" in {ref.name for ref in result.artifacts}


def test_a_result_that_can_not_be_spooled_is_handed_in_from_memory(
    run_lease: RunLease, make_lease: MakeLease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SpoolEntry, "keep", _no_room)
    assert isinstance(run_lease(make_lease()).body, Completed)


def test_a_disk_that_is_full_before_the_attempt_begins_is_reported_though_nothing_can_be_written(
    run_lease: RunLease, make_lease: MakeLease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Journal, "leased", _no_room)
    monkeypatch.setattr(SpoolEntry, "keep", _no_room)
    failure = _failure(run_lease(make_lease()))
    assert (failure.failure_class, failure.step) == (FailureClass.DISK_FULL, "lease")


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield int(listener.getsockname()[1])


def test_a_port_that_somebody_took_is_left_for_another(
    run_lease: RunLease, make_lease: MakeLease, taken_port: int, settings: RunnerSettings
) -> None:
    ports = iter([taken_port, free_port()])
    result = run_lease(make_lease(), port=lambda: next(ports))
    assert isinstance(result.body, Completed)
    assert [step.name for step in result.body.launch.steps].count("start") == 2


def test_a_load_that_overruns_its_limit_is_ended(run_lease: RunLease, make_lease: MakeLease) -> None:
    failure = _failure(run_lease(make_lease(workload=LONG), load_limit_s=4.0))
    assert (failure.failure_class, failure.step) == (FailureClass.TIMEOUT_STEP, "load")


def test_no_attempt_leaves_its_folder_behind(
    run_lease: RunLease, make_lease: MakeLease, settings: RunnerSettings, controller: FakeController
) -> None:
    run_lease(make_lease(profile=_profile(settings, "gone", "[start_failure]", 'message = "x"', "after_s = 0")))
    assert list(settings.attempts_dir.iterdir()) == []

    def told(memory: Memory) -> bool:
        return bool(memory.logs)

    controller.wait_until(told, "the log")
