"""The tables of states."""

from collections.abc import Mapping
from typing import Any

import pytest

from service.contract.lease import AttemptState
from service.domain.states import (
    ATTEMPT,
    BISECT,
    JOB,
    LIVE_ATTEMPT,
    REQUEST,
    RUNNER,
    SLOT,
    BisectState,
    JobState,
    RequestState,
    RunnerState,
    SlotState,
    is_final,
    sources,
)

TABLES: list[tuple[Mapping[Any, frozenset[Any]], Any]] = [
    (JOB, JobState),
    (ATTEMPT, AttemptState),
    (RUNNER, RunnerState),
    (SLOT, SlotState),
    (REQUEST, RequestState),
    (BISECT, BisectState),
]


@pytest.mark.parametrize(("table", "states"), TABLES)
def test_every_state_is_in_its_table_and_can_be_reached_or_is_a_beginning(
    table: Mapping[Any, frozenset[Any]], states: Any
) -> None:
    assert set(table) == set(states)
    reached = set().union(*table.values())
    beginnings = {JobState.WAITING, AttemptState.LEASED, RunnerState.ENROLLED, RequestState.OPEN}
    beginnings |= {BisectState.CREATED}
    assert set(states) - reached <= beginnings


@pytest.mark.parametrize(("table", "states"), TABLES)
def test_sources_are_the_table_read_backwards(table: Mapping[Any, frozenset[Any]], states: Any) -> None:
    for before in states:
        for after in states:
            assert (before in sources(table, after)) == (after in table[before])


def test_the_final_states() -> None:
    assert {s for s in JobState if is_final(JOB, s)} == {JobState.DONE, JobState.FAILED, JobState.CANCELLED}
    assert {s for s in RequestState if is_final(REQUEST, s)} == set(RequestState) - {RequestState.OPEN}
    assert {s for s in RunnerState if is_final(RUNNER, s)} == {RunnerState.REVOKED}
    ended = {BisectState.ENDED, BisectState.FAILED, BisectState.CANCELLED}
    assert {s for s in BisectState if is_final(BISECT, s)} == ended
    assert not [s for s in SlotState if is_final(SLOT, s)]
    ends = {AttemptState.COMPLETED, AttemptState.FAILED, AttemptState.RELEASED, AttemptState.CANCELLED}
    assert {s for s in AttemptState if is_final(ATTEMPT, s)} == ends


def test_a_live_attempt_goes_forward_only_and_may_end_from_anywhere() -> None:
    for here, state in enumerate(LIVE_ATTEMPT):
        onward = set(LIVE_ATTEMPT[here + 1 :])
        assert ATTEMPT[state] == onward | (set(AttemptState) - set(LIVE_ATTEMPT))


def test_an_expired_attempt_may_only_still_be_completed_or_failed() -> None:
    assert ATTEMPT[AttemptState.EXPIRED] == {AttemptState.COMPLETED, AttemptState.FAILED}
