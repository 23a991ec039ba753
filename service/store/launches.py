"""Launches and their repetitions: the evidence."""

from collections.abc import Collection, Sequence

from sqlmodel import Session, col, func, select

from service.store.tables import Launch, Repetition


def find(session: Session, launch_id: str) -> Launch | None:
    """Return one launch by id."""
    return session.exec(select(Launch).where(col(Launch.id) == launch_id)).one_or_none()


def of_attempt(session: Session, attempt_id: str) -> Launch | None:
    """Return the launch that an attempt yielded."""
    return session.exec(select(Launch).where(col(Launch.attempt_id) == attempt_id)).one_or_none()


def of_jobs(session: Session, job_ids: Collection[str]) -> Sequence[Launch]:
    """Return the launches of some jobs, oldest first: the last of a job is the one that counts."""
    query = select(Launch).where(col(Launch.job_id).in_(job_ids))
    return session.exec(query.order_by(col(Launch.created_at), col(Launch.id))).all()


def count(session: Session, request_ids: Collection[str]) -> dict[str, int]:
    """Return how many launches each request has, invalid ones included."""
    query = select(Launch.request_id, func.count()).where(col(Launch.request_id).in_(request_ids))
    found = dict(session.exec(query.group_by(col(Launch.request_id))).all())
    return {key: found.get(key, 0) for key in request_ids}


def newest(
    session: Session, *, cell: str | None, build: str | None, request: str | None, limit: int
) -> Sequence[Launch]:
    """Return up to ``limit`` launches, newest first, of a cell (digest), a build (id) and a request (id) if named."""
    query = select(Launch)
    for column, wanted in ((Launch.cell_digest, cell), (Launch.build_id, build), (Launch.request_id, request)):
        if wanted is not None:
            query = query.where(col(column) == wanted)
    return session.exec(query.order_by(col(Launch.created_at).desc(), col(Launch.id)).limit(limit)).all()


def repetitions(session: Session, launch_ids: Collection[str]) -> Sequence[Repetition]:
    """Return the repetitions of some launches, by launch and number."""
    query = select(Repetition).where(col(Repetition.launch_id).in_(launch_ids))
    return session.exec(query.order_by(col(Repetition.launch_id), col(Repetition.number))).all()
