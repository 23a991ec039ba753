"""Steps: bounded, given up when told to, and every way to fail has its class."""

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from runners import steps
from runners.clock import SystemClock
from runners.launch.installer import InstallStopped
from runners.launch.launchable import LaunchError
from runners.launch.wheels import WheelSetError
from runners.settings import RunnerSettings
from runners.steps import Step, StepFailed, StepRunner, Stopped, StopReason
from service.contract.failures import FailureClass
from service.contract.lease import AttemptState, Lease

SHORT = Step("short", AttemptState.PREPARING, lambda lease, settings: 0.05, FailureClass.IMAGE_PULL)
LONG = Step("long", AttemptState.PREPARING, lambda lease, settings: 600, FailureClass.INTERNAL)
Run = Callable[..., Any]


@pytest.fixture
def run(make_lease: Callable[..., Lease], settings: RunnerSettings) -> Run:
    """Runs one step in a loop of its own; ``told`` stops it from the start on."""

    def go(
        step: Step, work: Callable[[], Coroutine[Any, Any, Any]], told: StopReason | None = None, **options: Any
    ) -> tuple[Any, StepRunner]:
        async def body() -> tuple[Any, StepRunner]:
            stopped: asyncio.Future[StopReason] = asyncio.get_running_loop().create_future()
            if told is not None:
                stopped.set_result(told)
            runner = StepRunner(make_lease(), settings, SystemClock(), stopped, lambda begun: None)
            return await runner.run(step, work(), **options), runner

        return asyncio.run(body())

    return go


def test_a_step_returns_its_result_and_is_timed(run: Run) -> None:
    async def work() -> int:
        return 7

    result, runner = run(LONG, work)
    assert result == 7
    assert [timing.name for timing in runner.timings] == ["long"]


def test_a_step_that_overruns_is_cancelled_and_fails_with_its_own_class(run: Run) -> None:
    ended = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    with pytest.raises(StepFailed) as caught:
        run(SHORT, work)
    assert (caught.value.failure_class, caught.value.step) == (FailureClass.IMAGE_PULL, "short")
    assert ended == [True]


def test_a_step_is_given_up_for_the_reason_that_was_told(run: Run) -> None:
    with pytest.raises(Stopped) as caught:
        run(LONG, _for_ever, told=StopReason.CANCELLED)
    assert caught.value.reason is StopReason.CANCELLED


def test_stopping_a_server_is_not_given_up(run: Run) -> None:
    async def work() -> str:
        await asyncio.sleep(0)
        return "stopped"

    assert run(LONG, work, told=StopReason.SHUTDOWN, stoppable=False)[0] == "stopped"


async def _for_ever() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("error", "failure_class"),
    [
        (LaunchError(FailureClass.SPEC_INVALID, "x"), FailureClass.SPEC_INVALID),
        (WheelSetError(FailureClass.IMAGE_PULL, "x"), FailureClass.IMAGE_PULL),
        (InstallStopped("x"), FailureClass.INTERNAL),
        (OSError(errno.ENOSPC, "No space left on device", "/there"), FailureClass.DISK_FULL),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), FailureClass.DISK_FULL),
        (PermissionError(errno.EACCES, "Permission denied"), FailureClass.INTERNAL),
        (ZeroDivisionError("x"), FailureClass.INTERNAL),
    ],
)
def test_every_way_to_fail_has_its_class(run: Run, error: Exception, failure_class: FailureClass) -> None:
    async def work() -> None:
        raise error

    with pytest.raises(StepFailed) as caught:
        run(LONG, work)
    assert (caught.value.failure_class, caught.value.step) == (failure_class, "long")
    assert caught.value.message


def test_the_states_of_the_steps_never_go_back() -> None:
    order = list(AttemptState)
    states = [step.state for step in steps.STEPS if step is not steps.STOP]
    assert states == sorted(states, key=order.index)
