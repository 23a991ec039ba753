"""Jobs: the launches that are wanted, and the one statement that hands one out."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlmodel import Session, case, col, or_, select, update

from service.domain.states import JOB, JobState, sources
from service.store import events, guards
from service.store.tables import Bisect, Job

_OPEN = (JobState.WAITING, JobState.QUEUED, JobState.ACTIVE)


def of_request(session: Session, request_id: str, *, lock: bool = False) -> Sequence[Job]:
    """Return a request's jobs as they are now, by block and position; with ``lock``, keep others from changing them."""
    query = select(Job).where(col(Job.request_id) == request_id).order_by(col(Job.block), col(Job.position))
    if lock:
        query = query.with_for_update(key_share=True)
    return session.exec(query.execution_options(populate_existing=True)).all()


def claim(
    session: Session, at: datetime, slot_id: str, hardware: Collection[str], kinds: Collection[str]
) -> Job | None:
    """Take the next job for a slot out of the queue and return it, active and with its fence grown by one; or None.

    Only jobs of a hardware and a kind of build that the runner declared, not before their time, and either tied to
    this slot or to none, and never one that avoids this slot or whose bisect is paused. The highest priority is first;
    then blocks that this slot has begun; then the oldest.
    One statement: two runners never get the same job, and on PostgreSQL none waits for the other.
    """
    candidate = (
        select(Job.id)
        .where(
            col(Job.state) == JobState.QUEUED,
            col(Job.hardware).in_(hardware),
            col(Job.build_kind).in_(kinds),
            or_(col(Job.slot_id).is_(None), col(Job.slot_id) == slot_id),
            or_(col(Job.avoided_slot_id).is_(None), col(Job.avoided_slot_id) != slot_id),
            col(Job.request_id).not_in(select(Bisect.request_id).where(col(Bisect.paused).is_(True))),
            or_(col(Job.not_before_at).is_(None), col(Job.not_before_at) <= at),
        )
        .order_by(
            col(Job.priority).desc(),
            case((col(Job.slot_id) == slot_id, 0), else_=1),
            col(Job.created_at),
            col(Job.request_id),
            col(Job.block),
            col(Job.position),
        )
        .limit(1)
        .with_for_update(skip_locked=True, key_share=True)
        .scalar_subquery()
    )
    statement = (
        update(Job)
        .where(col(Job.id) == candidate, col(Job.state).in_(sources(JOB, JobState.ACTIVE)))
        .values(state=JobState.ACTIVE, fence=Job.fence + 1, slot_id=slot_id, not_before_at=None)
        .returning(Job)
        .execution_options(synchronize_session=False, populate_existing=True)
    )
    job: Job | None = session.exec(statement).scalar_one_or_none()
    if job is not None:
        _note(session, at, job, JobState.ACTIVE, fence=job.fence, slot_id=slot_id)
    return job


def tie(session: Session, job: Job, slot_id: str) -> None:
    """Tie what is left of a job's block to a slot, so that the block's comparison is within that slot."""
    rest = select(Job).where(
        col(Job.request_id) == job.request_id, col(Job.block) == job.block, col(Job.state) == JobState.WAITING
    )
    # Locked by position first: an UPDATE alone takes its locks in any order.
    ids = [row.id for row in session.exec(rest.order_by(col(Job.position)).with_for_update(key_share=True)).all()]
    if ids:
        statement = update(Job).where(col(Job.id).in_(ids), col(Job.state) == JobState.WAITING).values(slot_id=slot_id)
        session.exec(statement.execution_options(synchronize_session=False))


def tied(session: Session, slot_ids: Collection[str]) -> Sequence[Job]:
    """Return the jobs that wait for one of these slots, in the order of locks."""
    query = select(Job).where(col(Job.slot_id).in_(slot_ids), col(Job.state).in_((JobState.WAITING, JobState.QUEUED)))
    return session.exec(query.order_by(col(Job.request_id), col(Job.block), col(Job.position))).all()


def loosen(session: Session, at: datetime, job: Job) -> bool:
    """Let a job that waits for its slot run on any; False if it no longer waits for that slot."""
    loosened = guards.update_one(
        session,
        Job,
        col(Job.id) == job.id,
        guards.fenced(Job.fence, job.fence),
        col(Job.slot_id) == job.slot_id,
        col(Job.state).in_((JobState.WAITING, JobState.QUEUED)),
        slot_id=None,
    )
    if loosened:
        events.record(session, at, "job", job.id, "loosened", job.request_id, slot_id=job.slot_id)
    return loosened


def avoiding(session: Session) -> Sequence[Job]:
    """Return the queued jobs that avoid a slot, in the order of locks."""
    query = select(Job).where(col(Job.avoided_slot_id).is_not(None), col(Job.state) == JobState.QUEUED)
    return session.exec(query.order_by(col(Job.request_id), col(Job.block), col(Job.position))).all()


def stop_avoiding(session: Session, at: datetime, job: Job) -> bool:
    """Let a queued job run where its server did not start before; False if it is not queued as it was any more."""
    stopped = guards.update_one(
        session,
        Job,
        col(Job.id) == job.id,
        guards.fenced(Job.fence, job.fence),
        col(Job.state) == JobState.QUEUED,
        avoided_slot_id=None,
    )
    if stopped:
        events.record(session, at, "job", job.id, "no_other_slot", job.request_id, slot_id=job.avoided_slot_id)
    return stopped


def unfinished(session: Session) -> Sequence[Job]:
    """Return all jobs that wait, are queued or run, of every request."""
    return session.exec(select(Job).where(col(Job.state).in_(_OPEN))).all()


def next_of_block(session: Session, job: Job) -> Job | None:
    """Return the job of a block that follows this one and still waits; others in between were cancelled."""
    query = select(Job).where(
        col(Job.request_id) == job.request_id,
        col(Job.block) == job.block,
        col(Job.position) > job.position,
        col(Job.state) == JobState.WAITING,
    )
    first = query.order_by(col(Job.position)).limit(1).with_for_update(key_share=True)
    return session.exec(first.execution_options(populate_existing=True)).one_or_none()


def move(
    session: Session,
    at: datetime,
    job: Job,
    fence: int,
    target: JobState,
    *,
    among: Collection[JobState] = _OPEN,
    note: dict[str, Any] | None = None,
    **values: Any,
) -> bool:
    """Bring a job into a state if its newest attempt still has this fence and the table allows it; return whether.

    ``among`` narrows the states from which it may go. False means that somebody overtook the caller.
    """
    if target not in (JobState.WAITING, JobState.QUEUED, JobState.ACTIVE):
        values["ended_at"] = at
    moved = guards.update_one(
        session,
        Job,
        col(Job.id) == job.id,
        guards.fenced(Job.fence, fence),
        col(Job.state).in_([state for state in sources(JOB, target) if state in among]),
        state=target,
        **values,
    )
    if moved:
        _note(session, at, job, target, fence=fence, **(note or {}))
    return moved


def postpone(session: Session, job: Job, fence: int, **values: Any) -> bool:
    """Set when, and where, a queued job may be handed out; False if it is not queued under this fence any more."""
    return guards.update_one(
        session,
        Job,
        col(Job.id) == job.id,
        guards.fenced(Job.fence, fence),
        col(Job.state) == JobState.QUEUED,
        **values,
    )


def flag_cancel(session: Session, at: datetime, job: Job) -> bool:
    """Ask for an active job's end: its runner hears of it at its next renewal."""
    flagged = guards.update_one(
        session,
        Job,
        col(Job.id) == job.id,
        guards.fenced(Job.fence, job.fence),
        col(Job.state) == JobState.ACTIVE,
        col(Job.cancel_requested).is_(False),
        cancel_requested=True,
    )
    if flagged:
        events.record(session, at, "job", job.id, "cancel_requested", job.request_id)
    return flagged


def _note(session: Session, at: datetime, job: Job, what: JobState, **data: Any) -> None:
    events.record(
        session,
        at,
        "job",
        job.id,
        what,
        job.request_id,
        build_id=job.build_id,
        block=job.block,
        position=job.position,
        **data,
    )
