"""The state machines as data: an enum and a table of transitions each. docs/states.md is drawn from these tables."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from service.contract.lease import AttemptState


class JobState(StrEnum):
    """A launch that is wanted. Cancel is a flag beside it, not a state."""

    WAITING = "waiting"
    """Earlier jobs of its block have not ended yet."""
    QUEUED = "queued"
    ACTIVE = "active"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RunnerState(StrEnum):
    """One agent on one node."""

    ENROLLED = "enrolled"
    ONLINE = "online"
    DRAINING = "draining"
    OFFLINE = "offline"
    LOST = "lost"
    REVOKED = "revoked"


class SlotState(StrEnum):
    """One place on a runner where one server can run."""

    FREE = "free"
    RESERVED = "reserved"
    BUSY = "busy"


class RequestState(StrEnum):
    """What somebody asked for; follows from its jobs."""

    OPEN = "open"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class BisectState(StrEnum):
    """A search for the step that made a metric worse. How it ended is its answer; paused is a flag beside it."""

    CREATED = "created"
    CHECKING_ENDS = "checking_ends"
    SEARCHING = "searching"
    CONFIRMING = "confirming"
    ENDED = "ended"
    FAILED = "failed"
    CANCELLED = "cancelled"


State = TypeVar("State", JobState, AttemptState, RunnerState, SlotState, RequestState, BisectState)

_LIVE_ENDS = frozenset(
    {AttemptState.FAILED, AttemptState.EXPIRED, AttemptState.RELEASED, AttemptState.CANCELLED, AttemptState.COMPLETED}
)
LIVE_ATTEMPT: tuple[AttemptState, ...] = (
    AttemptState.LEASED,
    AttemptState.PREPARING,
    AttemptState.SERVING,
    AttemptState.WARMING,
    AttemptState.MEASURING,
    AttemptState.EVALUATING,
    AttemptState.UPLOADING,
)
"""In the order in which an attempt goes through them; it may skip ahead, never back."""

JOB: Mapping[JobState, frozenset[JobState]] = {
    JobState.WAITING: frozenset({JobState.QUEUED, JobState.FAILED, JobState.CANCELLED}),
    JobState.QUEUED: frozenset({JobState.ACTIVE, JobState.DONE, JobState.FAILED, JobState.CANCELLED}),
    JobState.ACTIVE: frozenset({JobState.QUEUED, JobState.DONE, JobState.FAILED, JobState.CANCELLED}),
    JobState.DONE: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
}
"""queued → done is the late result of an expired attempt that nobody overtook."""

ATTEMPT: Mapping[AttemptState, frozenset[AttemptState]] = {
    **{state: frozenset(LIVE_ATTEMPT[i + 1 :]) | _LIVE_ENDS for i, state in enumerate(LIVE_ATTEMPT)},
    AttemptState.EXPIRED: frozenset({AttemptState.COMPLETED, AttemptState.FAILED}),
    AttemptState.COMPLETED: frozenset(),
    AttemptState.FAILED: frozenset(),
    AttemptState.RELEASED: frozenset(),
    AttemptState.CANCELLED: frozenset(),
}
"""Expired is the one end that is not final: a late result counts if and only if no newer attempt exists."""

RUNNER: Mapping[RunnerState, frozenset[RunnerState]] = {
    RunnerState.ENROLLED: frozenset({RunnerState.ONLINE, RunnerState.REVOKED}),
    RunnerState.ONLINE: frozenset({RunnerState.DRAINING, RunnerState.OFFLINE, RunnerState.LOST, RunnerState.REVOKED}),
    RunnerState.DRAINING: frozenset({RunnerState.ONLINE, RunnerState.OFFLINE, RunnerState.LOST, RunnerState.REVOKED}),
    RunnerState.OFFLINE: frozenset({RunnerState.ONLINE, RunnerState.REVOKED}),
    RunnerState.LOST: frozenset({RunnerState.ONLINE, RunnerState.DRAINING, RunnerState.REVOKED}),
    RunnerState.REVOKED: frozenset(),
}

SLOT: Mapping[SlotState, frozenset[SlotState]] = {
    SlotState.FREE: frozenset({SlotState.RESERVED}),
    SlotState.RESERVED: frozenset({SlotState.BUSY, SlotState.FREE}),
    SlotState.BUSY: frozenset({SlotState.FREE}),
}

REQUEST: Mapping[RequestState, frozenset[RequestState]] = {
    RequestState.OPEN: frozenset({RequestState.DONE, RequestState.FAILED, RequestState.CANCELLED}),
    RequestState.DONE: frozenset(),
    RequestState.FAILED: frozenset(),
    RequestState.CANCELLED: frozenset(),
}

_BISECT_ENDS = frozenset({BisectState.ENDED, BisectState.FAILED, BisectState.CANCELLED})
BISECT: Mapping[BisectState, frozenset[BisectState]] = {
    BisectState.CREATED: _BISECT_ENDS | {BisectState.CHECKING_ENDS},
    BisectState.CHECKING_ENDS: _BISECT_ENDS | {BisectState.SEARCHING, BisectState.CONFIRMING},
    BisectState.SEARCHING: _BISECT_ENDS | {BisectState.CHECKING_ENDS, BisectState.CONFIRMING},
    BisectState.CONFIRMING: _BISECT_ENDS | {BisectState.CHECKING_ENDS, BisectState.SEARCHING},
    BisectState.ENDED: frozenset(),
    BisectState.FAILED: frozenset(),
    BisectState.CANCELLED: frozenset(),
}
"""A proof that fails takes the bisect back to searching, with what it measured added. A second slot may search while
the ends are still being checked, so that what was learnt may also bring it back there."""


def sources(table: Mapping[State, frozenset[State]], target: State) -> tuple[State, ...]:
    """Return the states from which ``target`` may be entered: the guard of an UPDATE."""
    return tuple(state for state, targets in table.items() if target in targets)


def is_final(table: Mapping[State, frozenset[State]], state: State) -> bool:
    """Return whether nothing can follow ``state``."""
    return not table[state]
