"""Events become visible in the order of their ids, and only with what they tell of."""

import threading

import pytest

from service.store import events
from service.store.engine import Store
from tests.clocks import SimulatedClock


def seen(store: Store, after: int = 0) -> list[str]:
    with store.read() as session:
        return [row.kind for row in events.after(session, after, None, 100)]


def test_an_event_is_stored_with_its_transaction_and_not_without(store: Store, clock: SimulatedClock) -> None:
    with store.write() as session:
        events.record(session, clock.now(), "job", "job_1", "queued", "req_1", block=1)

    def break_off() -> None:
        with store.write() as session:
            events.record(session, clock.now(), "job", "job_1", "active")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        break_off()
    assert seen(store) == ["job.queued"]
    with store.read() as session:
        row = events.after(session, 0, "req_1", 10)[0]
        assert (row.at, row.subject_id, row.data) == (clock.now(), "job_1", {"block": 1})
        assert events.after(session, 0, "req_2", 10) == []
        assert [e.kind for e in events.of_subject(session, "job", "job_1", ["job.queued"])] == ["job.queued"]


def test_a_reader_that_goes_on_from_the_last_id_misses_none(store: Store, clock: SimulatedClock) -> None:
    """A transaction that noted its event first and commits last gets the later id."""
    noted, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        # On SQLite one writer is alone, so that it must not wait for the other inside of its transaction.
        if store.dialect == "sqlite":
            noted.set()
            assert go_on.wait(30)
        with store.write() as session:
            events.record(session, clock.now(), "job", "job_1", "slow")
            noted.set()
            assert go_on.wait(30)

    writer = threading.Thread(target=slow)
    writer.start()
    assert noted.wait(30)
    with store.write() as session:
        events.record(session, clock.now(), "job", "job_2", "fast")
    with store.read() as session:
        first = events.after(session, 0, None, 100)
    assert [row.kind for row in first] == ["job.fast"]
    go_on.set()
    writer.join(30)
    assert seen(store, after=first[-1].id or 0) == ["job.slow"]
