"""Many runners ask at once, from threads of their own and over connections of their own."""

import threading
from concurrent.futures import ThreadPoolExecutor

from sqlmodel import col, select

from service.actions import requests
from service.contract.lease import Lease
from service.domain.states import RequestState
from service.store.tables import Attempt, Job
from tests.workshop import Package, RunnerLife, Workshop, package

RUNNERS = 6


def test_no_job_is_handed_out_twice_and_everything_gets_done(workshop: Workshop) -> None:
    lives = [workshop.runner(f"node-{n}", slots=1) for n in range(RUNNERS)]
    asked = [workshop.submit(blocks=2) for _ in range(3)]
    made = package()
    start = threading.Barrier(RUNNERS)

    with ThreadPoolExecutor(RUNNERS) as pool:
        done = [
            lease for leases in pool.map(lambda life: _work(workshop, life, made, start), lives) for lease in leases
        ]
    assert len({lease.job_id for lease in done}) == len(done) == 24
    assert {requests.get_request(workshop.ctx, request.id).state for request in asked} == {RequestState.DONE}
    with workshop.ctx.store.read() as session:
        assert set(session.exec(select(Job.fence)).all()) == {1}
        slots = session.exec(select(Job.request_id, Job.block, Attempt.slot_id).join(Attempt)).all()
    assert len({(request, block) for request, block, _ in slots}) == len(set(slots)) == 6


def test_the_same_lease_request_twice_at_once_gets_one_lease(workshop: Workshop, runner: RunnerLife) -> None:
    workshop.submit(blocks=2)
    start = threading.Barrier(4)

    def ask(_: int) -> Lease | None:
        start.wait(30)
        return workshop.lease(runner, 0, "lrq_the_same_one")

    with ThreadPoolExecutor(4) as pool:
        leases = list(pool.map(ask, range(4)))
    assert leases[0] is not None
    assert leases == [leases[0]] * 4
    with workshop.ctx.store.read() as session:
        assert len(session.exec(select(col(Attempt.id))).all()) == 1


def _work(workshop: Workshop, life: RunnerLife, made: Package, start: threading.Barrier) -> list[Lease]:
    """Take and finish what there is until there is nothing."""
    done: list[Lease] = []
    start.wait(30)
    for _ in range(60):
        leased = workshop.lease(life)
        if leased is None:
            with workshop.ctx.store.read() as session:
                left = session.exec(select(Job.id).where(col(Job.ended_at).is_(None))).all()
            if not left:
                break
            continue
        assert workshop.finish(leased, made).accepted
        done.append(leased)
    return done
