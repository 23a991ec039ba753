"""Whether a failed attempt is tried again: one table, by class of failure.

The classes and their counts follow what makes such jobs fail elsewhere (vllm-project/vllm issue 57372: of 240 flaky
jobs 31 % ran past a step's time limit, 22 % lost their agent, 8 % failed to pull).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from service.contract.failures import FailureClass

MAX_BURNED = 6
"""A job that burned this many attempts, of whichever classes, is not tried again."""


@dataclass(frozen=True)
class Policy:
    """How many failures of a class are forgiven, and how long to wait: ``delay_s``, doubled each time."""

    retries: int
    delay_s: float = 0.0


@dataclass(frozen=True)
class Retry:
    """Try again, no earlier than ``delay_s`` from now."""

    delay_s: float


@dataclass(frozen=True)
class GiveUp:
    """The job has failed for good."""

    reason: str


ELSEWHERE = frozenset({FailureClass.SERVER_START, FailureClass.SERVER_CRASH})
"""Tried again on another slot, where there is one: what fails on two is the build's fault, not the slot's."""

OF_THE_BUILD = frozenset(
    {
        FailureClass.SPEC_INVALID,
        FailureClass.IMAGE_PULL,
        FailureClass.SERVER_START,
        FailureClass.SERVER_CRASH,
        FailureClass.TIMEOUT_STEP,
        FailureClass.INVALID_MEASUREMENT,
    }
)
"""A job that failed for good in one of these says that its build can't be measured in its cell; in another, nothing."""

POLICIES: Mapping[FailureClass, Policy] = MappingProxyType(
    {
        FailureClass.SPEC_INVALID: Policy(0),
        FailureClass.IMAGE_PULL: Policy(3, 10.0),
        FailureClass.DISK_FULL: Policy(5, 30.0),
        FailureClass.SERVER_START: Policy(1),
        FailureClass.SERVER_CRASH: Policy(1),
        FailureClass.TIMEOUT_STEP: Policy(1),
        FailureClass.INVALID_MEASUREMENT: Policy(1),
        FailureClass.EVALUATION: Policy(0),
        FailureClass.RUNNER_LOST: Policy(3),
        FailureClass.UPLOAD_FAILED: Policy(1, 10.0),
        FailureClass.INTERNAL: Policy(1),
    }
)


def decide(failure: FailureClass, before: Mapping[FailureClass, int], burned: int) -> Retry | GiveUp:
    """Return what follows a failure.

    ``before`` counts the job's earlier failures by class, without this one; ``burned`` all its failed and expired
    attempts, with this one. Attempts that a runner gave back are in neither.
    """
    policy = POLICIES[failure]
    times = before.get(failure, 0)
    if burned >= MAX_BURNED:
        return GiveUp(f"{burned} attempts failed; at most {MAX_BURNED} are made")
    if times >= policy.retries:
        return GiveUp("is never tried again" if policy.retries == 0 else f"failed in this way {times + 1} times")
    return Retry(policy.delay_s * 2**times)
