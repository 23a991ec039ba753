"""Requests: what somebody asked for."""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlmodel import Session, and_, col, func, or_, select

from service.domain.states import REQUEST, JobState, RequestState, sources
from service.store import events, guards
from service.store.tables import Job, RequestRow


def by_key(session: Session, idempotency_key: str) -> RequestRow | None:
    """Return the request that was made under this key."""
    return session.exec(select(RequestRow).where(col(RequestRow.idempotency_key) == idempotency_key)).one_or_none()


def some_of(session: Session, ids: Collection[str]) -> dict[str, RequestRow]:
    """Return requests by id."""
    return {row.id: row for row in session.exec(select(RequestRow).where(col(RequestRow.id).in_(ids))).all()}


def newest(session: Session, limit: int, before: RequestRow | None) -> Sequence[RequestRow]:
    """Return up to ``limit`` requests, newest first, from the one after ``before`` on."""
    query = select(RequestRow)
    if before is not None:
        query = query.where(
            or_(
                col(RequestRow.created_at) < before.created_at,
                and_(col(RequestRow.created_at) == before.created_at, col(RequestRow.id) < before.id),
            )
        )
    order = (col(RequestRow.created_at).desc(), col(RequestRow.id).desc())
    return session.exec(query.order_by(*order).limit(limit)).all()


def count_jobs(session: Session, request_ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return, for each request, how many of its jobs are in which state."""
    query = (
        select(Job.request_id, Job.state, func.count())
        .where(col(Job.request_id).in_(request_ids))
        .group_by(col(Job.request_id), col(Job.state))
    )
    counts: dict[str, dict[str, int]] = {key: {} for key in request_ids}
    for request_id, state, number in session.exec(query).all():
        counts[request_id][JobState(state).value] = number
    return counts


def move(session: Session, at: datetime, request_id: str, target: RequestState, reason: str | None = None) -> bool:
    """End a request that is open; return False if it had ended."""
    moved = guards.update_one(
        session,
        RequestRow,
        col(RequestRow.id) == request_id,
        col(RequestRow.state).in_(sources(REQUEST, target)),
        state=target,
        reason=reason,
        ended_at=at,
    )
    if moved:
        events.record(session, at, "request", request_id, target, request_id, reason=reason)
    return moved


def flag_cancel(session: Session, at: datetime, request_id: str, by: str) -> bool:
    """Note that a request is to be cancelled; False if it had ended or was flagged before."""
    flagged = guards.update_one(
        session,
        RequestRow,
        col(RequestRow.id) == request_id,
        col(RequestRow.state) == RequestState.OPEN,
        col(RequestRow.cancel_requested).is_(False),
        cancel_requested=True,
    )
    if flagged:
        events.record(session, at, "request", request_id, "cancel_requested", request_id, by=by)
    return flagged
