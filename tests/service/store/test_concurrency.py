"""Everything at once: results, failures, cancels, restarts and the reaper, from threads of their own."""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sqlmodel import select

from service.actions import attempts, cancel, reap
from service.contract.errors import Busy, Conflict, LeaseLost
from service.contract.failures import FailureClass
from service.contract.lease import AttemptState, Lease, Release, ReleaseReason, Renewal
from service.domain.states import LIVE_ATTEMPT, SlotState
from service.store.tables import Attempt, Job, Slot
from tests.clocks import SimulatedClock
from tests.workshop import ADA, RunnerLife, Workshop

ROUNDS = 25


def test_what_happens_at_once_happens_in_some_order(workshop: Workshop) -> None:
    asked = [workshop.submit(blocks=2).id for _ in range(6)]
    lives = [workshop.runner(f"node-{n}", slots=1) for n in range(4)]
    start = threading.Barrier(len(lives) + 2)
    busy: Counter[str] = Counter()

    def repeat(name: str, step: Callable[[int], None]) -> None:
        start.wait(30)
        for number in range(ROUNDS):
            try:
                step(number)
            except (LeaseLost, Conflict):
                continue
            except Busy:
                busy[name] += 1

    def cancel_one(number: int) -> None:
        if number == ROUNDS // 2:
            cancel.cancel_request(workshop.ctx, ADA, asked[0])

    tasks: list[tuple[str, Callable[[int], None]]] = [
        (life.id, lambda number, life=life: _live(workshop, life, number))  # type: ignore[misc]
        for life in lives
    ]
    tasks += [("reaper", lambda _: _reap(workshop)), ("user", cancel_one)]
    with ThreadPoolExecutor(len(tasks)) as pool:
        for done in [pool.submit(repeat, *task) for task in tasks]:
            done.result()

    assert not busy, "locks were waited for in circles"
    with workshop.ctx.store.read() as session:
        tries = session.exec(select(Attempt)).all()
        jobs = session.exec(select(Job)).all()
        slots = session.exec(select(Slot)).all()
    live = [attempt for attempt in tries if attempt.state in LIVE_ATTEMPT]
    assert max(Counter(attempt.job_id for attempt in live).values(), default=0) <= 1
    assert {job.id: job.fence for job in jobs} == {
        job.id: max((a.fence for a in tries if a.job_id == job.id), default=0) for job in jobs
    }
    assert {slot.attempt_id for slot in slots if slot.state is not SlotState.FREE} == {a.id for a in live}
    assert {a.job_id for a in live} == {job.id for job in jobs if job.state.value == "active"}


def _live(workshop: Workshop, life: RunnerLife, number: int) -> None:
    """One turn of a runner: take something and end it in one of the ways in which it can end."""
    leased: Lease | None = workshop.lease(life)
    if leased is None:
        return
    attempts.renew(
        workshop.ctx, leased.attempt_id, Renewal(fence=leased.fence, state=AttemptState.SERVING, step="start")
    )
    if number % 5 == 1:
        workshop.fail(leased, FailureClass.RUNNER_LOST)
    elif number % 5 == 2:
        said = Release(fence=leased.fence, reason=ReleaseReason.DRAIN)
        attempts.release(workshop.ctx, leased.attempt_id, said)
    elif number % 5 == 3:
        life.boot_id = f"boot_{life.id}_{number}"  # killed; the next turn is that of a new life
    else:
        workshop.finish(leased)


def _reap(workshop: Workshop) -> None:
    """Let a good part of a lease pass, so that now and then one runs out under its runner's hands."""
    clock = workshop.ctx.clock
    assert isinstance(clock, SimulatedClock)
    clock.advance(workshop.ctx.settings.lease_ttl_s / 3)
    reap.reap(workshop.ctx)


def test_a_read_keeps_one_view_whatever_is_written_meanwhile(workshop: Workshop) -> None:
    with workshop.ctx.store.read() as session:
        before = session.exec(select(Job.id)).all()
        workshop.submit(blocks=1)
        assert session.exec(select(Job.id)).all() == before
    with workshop.ctx.store.read() as session:
        assert len(session.exec(select(Job.id)).all()) == len(before) + 4
