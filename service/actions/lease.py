"""Handing out work."""

from datetime import datetime, timedelta

from service.actions import presence
from service.actions.context import Context
from service.actions.tokens import attempt_token
from service.contract.builds import Build
from service.contract.cells import Cell
from service.contract.errors import InvalidInput, LeaseLost
from service.contract.ids import new_id
from service.contract.lease import AttemptState, EvaluationOrder, Lease, LeaseRequest
from service.domain import recipes
from service.domain.states import LIVE_ATTEMPT, RunnerState, SlotState
from service.store import attempts, events, guards, jobs, runners
from service.store.engine import Session
from service.store.tables import Attempt, BuildRow, CellRow, Job, Runner, Slot


def try_lease(ctx: Context, runner_id: str, request: LeaseRequest) -> Lease | None:
    """Give a runner the next job for one of its slots, or None if there is none now. Does not wait.

    The same ``request_id`` returns the same lease for as long as its attempt lives; after that it raises LeaseLost,
    and the runner asks with a new one. A runner that drains gets nothing new. Nothing is handed out before the
    protocol version was checked. Raises ProtocolUnsupported, TokenInvalid, Conflict (a newer process of this runner
    has taken over), InvalidInput for a slot that the runner did not declare.
    """
    presence.check_protocol(request.protocol_version)
    now = ctx.clock.now()
    with ctx.store.write() as session:
        runner = presence.arrive(session, now, runner_id, request.boot_id)
        earlier = attempts.of_lease_request(session, runner_id, request.request_id)
        if earlier is not None:
            return _again(ctx, session, earlier)
        slot = runners.slot(session, runner_id, request.slot)
        if slot is None:
            raise InvalidInput(f"This runner declared no slot {request.slot} when it enrolled.")
        if runner.state is RunnerState.DRAINING and not runner.drain_requested:
            return None  # the agent said so itself; its next heartbeat says otherwise
        if presence.settle_state(session, now, runner, draining=False) is RunnerState.DRAINING:
            return None
        if slot.state is not SlotState.FREE:
            return None
        job = jobs.claim(session, now, slot.id, runner.hardware, runner.build_kinds)
        if job is None:
            return None
        jobs.tie(session, job, slot.id)
        attempt = _begin(ctx, session, now, runner, slot, job, request)
        return _lease(ctx, session, job, attempt, slot)


def _begin(
    ctx: Context, session: Session, now: datetime, runner: Runner, slot: Slot, job: Job, request: LeaseRequest
) -> Attempt:
    attempt = Attempt(
        id=new_id("att"),
        job_id=job.id,
        number=attempts.count(session, job.id) + 1,
        fence=job.fence,
        state=AttemptState.LEASED,
        runner_id=runner.id,
        slot_id=slot.id,
        boot_id=request.boot_id,
        lease_request_id=request.request_id,
        lease_until_at=now + timedelta(seconds=ctx.settings.lease_ttl_s),
        created_at=now,
    )
    guards.insert(session, attempt)
    if not runners.reserve(session, now, slot.id, attempt.id):
        raise LeaseLost("The slot was taken meanwhile; ask again.")
    data = {"job_id": job.id, "number": attempt.number, "fence": job.fence, "runner": runner.name, "slot": slot.index}
    events.record(session, now, "attempt", attempt.id, attempt.state, job.request_id, **data)
    return attempt


def _again(ctx: Context, session: Session, attempt: Attempt) -> Lease:
    job = guards.fresh(session, Job, attempt.job_id)
    slot = guards.fresh(session, Slot, attempt.slot_id)
    if attempt.state not in LIVE_ATTEMPT or job is None or slot is None:
        raise LeaseLost("The attempt of this lease request has ended; ask with a new request_id.")
    return _lease(ctx, session, job, attempt, slot)


def _lease(ctx: Context, session: Session, job: Job, attempt: Attempt, slot: Slot) -> Lease:
    build_row = guards.fresh(session, BuildRow, job.build_id)
    cell_row = guards.fresh(session, CellRow, job.cell_digest)
    if build_row is None or cell_row is None:
        raise LookupError(f"{job.id} refers to a build or cell that is not stored")
    build = Build.model_validate({key: getattr(build_row, key) for key in ("id", "name", "version", "source")})
    cell = Cell.model_validate(cell_row.body)
    return Lease(
        attempt_id=attempt.id,
        job_id=job.id,
        request_id=job.request_id,
        number=attempt.number,
        fence=attempt.fence,
        token=attempt_token(ctx, attempt.id, attempt.fence),
        ttl_s=ctx.settings.lease_ttl_s,
        renew_s=ctx.settings.renew_s,
        slot=slot.index,
        build=build,
        recipe=recipes.resolve(cell.recipe, build.version),
        workload=cell.workload,
        cell=job.cell_digest,
        hardware=job.hardware,
        seed=job.seed,
        evaluation=EvaluationOrder() if job.evaluate else None,
    )
