"""The steps of an attempt as data, and the one way in which a step is run: bounded, and given up when pointless."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from runners.launch.launchable import LaunchError
from runners.launch.wheels import InstallStopped, WheelSetError
from runners.settings import RunnerSettings
from service.contract.clock import Clock
from service.contract.failures import FailureClass
from service.contract.lease import AttemptState, Lease
from service.contract.upload import StepTiming

T = TypeVar("T")
FULL = (28, 122)
"""ENOSPC and EDQUOT."""


@dataclass(frozen=True)
class Step:
    """One step: the state that the attempt is in, its time limit, and what it means when the limit passes."""

    name: str
    state: AttemptState
    limit_s: Callable[[Lease, RunnerSettings], float]
    overrun: FailureClass


PREPARE = Step("prepare", AttemptState.PREPARING, lambda _, s: s.prepare_limit_s, FailureClass.IMAGE_PULL)
START = Step("start", AttemptState.SERVING, lambda _, s: 60, FailureClass.SERVER_START)
IDENTIFY = Step("identify", AttemptState.SERVING, lambda x, _: x.recipe.ready_timeout_s, FailureClass.TIMEOUT_STEP)
LOAD = Step("load", AttemptState.WARMING, lambda _, s: s.load_limit_s + 60, FailureClass.TIMEOUT_STEP)
EVALUATE = Step("evaluate", AttemptState.EVALUATING, lambda _, s: s.evaluate_limit_s, FailureClass.TIMEOUT_STEP)
STOP = Step("stop", AttemptState.SERVING, lambda _, s: s.stop_grace_s + 120, FailureClass.INTERNAL)
STEPS = (PREPARE, START, IDENTIFY, LOAD, EVALUATE, STOP)
"""In this order; an attempt's state never goes back, so ``stop`` keeps the one that was reached.

What follows, the upload, ends with the controller's answer and has no limit.
"""


class StopReason(StrEnum):
    """Why an attempt is given up though nothing failed."""

    CANCELLED = "cancelled"
    SHUTDOWN = "shutdown"
    LOST = "lost"
    EXPIRED = "expired"


class Stopped(Exception):
    """The attempt is to be given up; ``reason`` says why."""

    def __init__(self, reason: StopReason) -> None:
        self.reason = reason
        super().__init__(reason)


class StepFailed(Exception):
    """A step failed for good."""

    def __init__(self, failure_class: FailureClass, step: str, message: str) -> None:
        self.failure_class = failure_class
        self.step = step
        self.message = message
        super().__init__(message)


@dataclass
class StepRunner:
    """Runs the steps of one attempt one after another. ``stopped`` resolves when the attempt is to be given up."""

    lease: Lease
    settings: RunnerSettings
    clock: Clock
    stopped: "asyncio.Future[StopReason]"
    on_step: Callable[[Step], None]
    timings: list[StepTiming] = field(default_factory=list)

    async def run(self, step: Step, work: Coroutine[Any, Any, T], *, stoppable: bool = True) -> T:
        """Return what ``work`` returns.

        Raises Stopped when the attempt is given up meanwhile, StepFailed when the time limit passes or ``work`` fails.
        In each case ``work`` has been cancelled and has ended.
        """
        self.on_step(step)
        began_s = self.clock.monotonic_s()
        limit_s = step.limit_s(self.lease, self.settings)
        task = asyncio.ensure_future(work)
        waits: set[asyncio.Future[Any]] = {task, self.stopped} if stoppable else {task}
        try:
            await asyncio.wait(waits, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return await _classed(step, task)
            if stoppable and self.stopped.done():
                raise Stopped(self.stopped.result())
            raise StepFailed(step.overrun, step.name, f"the step took longer than its limit of {limit_s:.0f} s")
        finally:
            await end(task)
            self.timings.append(StepTiming(name=step.name, duration_s=max(0.0, self.clock.monotonic_s() - began_s)))


async def end(task: "asyncio.Future[Any]") -> None:
    """Cancel a task if need be, and wait until it has ended; its own exception is not raised."""
    if not task.done():
        task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()


async def _classed(step: Step, work: Awaitable[T]) -> T:
    """Return the result of ``work``; turn what it raises into StepFailed with a failure class."""
    try:
        return await work
    except (StepFailed, Stopped):
        raise
    except (LaunchError, WheelSetError) as error:
        raise StepFailed(error.failure_class, step.name, error.message) from error
    except InstallStopped as error:
        raise StepFailed(FailureClass.INTERNAL, step.name, str(error)) from error
    except OSError as error:
        raise StepFailed(os_failure(error), step.name, f"{error.strerror or error}: {error.filename or ''}") from error
    except Exception as error:  # whatever it was, the attempt ends with a failure and the agent lives on
        raise StepFailed(FailureClass.INTERNAL, step.name, f"{type(error).__name__}: {error}") from error


def os_failure(error: OSError) -> FailureClass:
    """Return the failure class of an error of the operating system."""
    return FailureClass.DISK_FULL if error.errno in FULL else FailureClass.INTERNAL
