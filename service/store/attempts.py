"""Attempts: one execution of a job under a lease. Every write names the fence it was leased under."""

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement
from sqlmodel import Session, col, func, select

from service.contract.failures import FailureClass
from service.contract.lease import AttemptState
from service.domain.states import ATTEMPT, LIVE_ATTEMPT, sources
from service.store import events, guards
from service.store.tables import Artifact, Attempt, Job

ACCEPTING = (*LIVE_ATTEMPT, AttemptState.EXPIRED)
"""States in which a result may still be handed in."""


def of_lease_request(session: Session, runner_id: str, lease_request_id: str) -> Attempt | None:
    """Return the attempt that a runner was given for this lease request."""
    query = select(Attempt).where(
        col(Attempt.runner_id) == runner_id, col(Attempt.lease_request_id) == lease_request_id
    )
    return session.exec(query.execution_options(populate_existing=True)).one_or_none()


def count(session: Session, job_id: str) -> int:
    """Return how many attempts a job had."""
    return session.exec(select(func.count()).select_from(Attempt).where(col(Attempt.job_id) == job_id)).one()


def overdue(session: Session, at: datetime, limit: int = 1000) -> Sequence[str]:
    """Return the ids of live attempts whose lease has run out, longest ago first."""
    query = select(Attempt.id).where(col(Attempt.state).in_(LIVE_ATTEMPT), col(Attempt.lease_until_at) < at)
    return session.exec(query.order_by(col(Attempt.lease_until_at), col(Attempt.id)).limit(limit)).all()


def live_of_runner(session: Session, runner_id: str) -> Sequence[Attempt]:
    """Return a runner's live attempts in the order of locks (by request, block and position of their jobs)."""
    query = (
        select(Attempt)
        .join(Job, col(Job.id) == col(Attempt.job_id))
        .where(col(Attempt.runner_id) == runner_id, col(Attempt.state).in_(LIVE_ATTEMPT))
        .order_by(col(Job.request_id), col(Job.block), col(Job.position))
    )
    return session.exec(query.execution_options(populate_existing=True)).all()


def of_jobs(session: Session, job_ids: Collection[str]) -> Sequence[Attempt]:
    """Return the attempts of some jobs, by job and number."""
    query = select(Attempt).where(col(Attempt.job_id).in_(job_ids))
    return session.exec(query.order_by(col(Attempt.job_id), col(Attempt.number))).all()


def of_requests(session: Session, request_ids: Collection[str]) -> dict[str, list[Attempt]]:
    """Return the attempts of each request's jobs."""
    query = select(Job.request_id, Attempt).join(Job, col(Job.id) == col(Attempt.job_id))
    found: dict[str, list[Attempt]] = {key: [] for key in request_ids}
    for request_id, attempt in session.exec(query.where(col(Job.request_id).in_(request_ids))).all():
        found[request_id].append(attempt)
    return found


def burned(session: Session, job_id: str) -> Counter[FailureClass]:
    """Return how many of a job's attempts ended in which class of failure; those that were released don't count."""
    query = select(Attempt.failure).where(
        col(Attempt.job_id) == job_id, col(Attempt.state).in_((AttemptState.FAILED, AttemptState.EXPIRED))
    )
    return Counter(FailureClass(row["failure_class"]) for row in session.exec(query).all() if row is not None)


def held(attempt_id: str, fence: int, states: Collection[AttemptState]) -> list[ColumnElement[bool]]:
    """Return the guard of every write of an attempt: it is this one, under this fence, in one of these states."""
    return [col(Attempt.id) == attempt_id, guards.fenced(Attempt.fence, fence), col(Attempt.state).in_(states)]


def is_held(session: Session, attempt_id: str, fence: int, states: Collection[AttemptState]) -> bool:
    """Return whether a write would be let through now."""
    return session.exec(select(Attempt.id).where(*held(attempt_id, fence, states))).one_or_none() is not None


def touch(
    session: Session, attempt_id: str, fence: int, states: Collection[AttemptState], *also: Any, **values: Any
) -> bool:
    """Change an attempt without changing its state; False if it is not held under this fence any more."""
    return guards.update_one(session, Attempt, *held(attempt_id, fence, states), *also, **values)


def move(
    session: Session,
    at: datetime,
    attempt: Attempt,
    fence: int,
    target: AttemptState,
    *,
    request_id: str,
    among: Collection[AttemptState] = ACCEPTING,
    also: Sequence[ColumnElement[bool]] = (),
    note: dict[str, Any] | None = None,
    **values: Any,
) -> bool:
    """Bring an attempt into a state if it is held under this fence and the table allows it; return whether it did."""
    if target not in LIVE_ATTEMPT:
        values["ended_at"] = at
    states = [state for state in sources(ATTEMPT, target) if state in among]
    moved = guards.update_one(session, Attempt, *held(attempt.id, fence, states), *also, state=target, **values)
    if moved:
        data = {"job_id": attempt.job_id, "number": attempt.number, **(note or {})}
        events.record(session, at, "attempt", attempt.id, target, request_id, **data)
    return moved


def keep_orphan(session: Session, attempt_id: str, fence: int, result_sha256: str) -> bool:
    """Note, once, the hash of a result that came too late to count; False under another fence or if one is noted."""
    return guards.update_one(
        session,
        Attempt,
        col(Attempt.id) == attempt_id,
        guards.fenced(Attempt.fence, fence),
        col(Attempt.result_sha256).is_(None),
        result_sha256=result_sha256,
    )


def artifact(session: Session, attempt_id: str, name: str) -> Artifact | None:
    """Return one file of an attempt by name."""
    query = select(Artifact).where(col(Artifact.attempt_id) == attempt_id, col(Artifact.name) == name)
    return session.exec(query).one_or_none()


def artifacts(session: Session, attempt_ids: Collection[str]) -> Sequence[Artifact]:
    """Return the files of some attempts, by attempt and name."""
    query = select(Artifact).where(col(Artifact.attempt_id).in_(attempt_ids))
    return session.exec(query.order_by(col(Artifact.attempt_id), col(Artifact.name))).all()


def still_overdue(now: datetime) -> guards.Predicate:
    """Return the predicate that an attempt's lease ended before ``now``: it may have been renewed since it was read."""
    return col(Attempt.lease_until_at) < now


def log_ends_at(offset: int) -> guards.Predicate:
    """Return the predicate that an attempt's log has exactly ``offset`` bytes."""
    return col(Attempt.log_bytes) == offset
