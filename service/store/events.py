"""What happened, in the order in which it became visible. Rows are only ever added.

Events are kept until the end of their transaction and written just before it commits. On PostgreSQL a lock orders
these ends, so that a reader who goes on from the last id that it saw misses nothing: without it, a transaction
that took its ids early and committed late would appear behind the reader's back.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import event as hooks
from sqlalchemy import text
from sqlmodel import Session, col, select

from service.store.tables import Event

_PENDING = "backslide_events"
_ORDER_OF_COMMITS = 0x6261636B  # any number that nothing else locks


def record(
    session: Session,
    at: datetime,
    subject_kind: str,
    subject_id: str,
    what: str,
    request_id: str | None = None,
    **data: Any,
) -> None:
    """Note that something happened to a subject; stored if and only if the transaction commits.

    The event's kind is ``subject_kind.what``. ``data`` must be JSON-able.
    """
    pending: list[Event] | None = session.info.get(_PENDING)
    if pending is None:
        pending = session.info[_PENDING] = []
        hooks.listen(session, "before_commit", _write)
    pending.append(
        Event(
            at=at,
            subject_kind=subject_kind,
            subject_id=subject_id,
            request_id=request_id,
            kind=f"{subject_kind}.{what}",
            data=data,
        )
    )


def after(session: Session, last: int, request_id: str | None, limit: int) -> Sequence[Event]:
    """Return up to ``limit`` events with ids above ``last``, oldest first; of one request, or of everything."""
    query = select(Event).where(col(Event.id) > last)
    if request_id is not None:
        query = query.where(col(Event.request_id) == request_id)
    return session.exec(query.order_by(col(Event.id)).limit(limit)).all()


def of_subject(session: Session, subject_kind: str, subject_id: str, kinds: Sequence[str]) -> Sequence[Event]:
    """Return a subject's events of some kinds (such as ``runner.lost``), oldest first."""
    query = select(Event).where(
        col(Event.subject_kind) == subject_kind, col(Event.subject_id) == subject_id, col(Event.kind).in_(kinds)
    )
    return session.exec(query.order_by(col(Event.id))).all()


def _write(session: Session) -> None:
    pending: list[Event] = session.info[_PENDING]
    if not pending:
        return
    if session.get_bind().dialect.name == "postgresql":
        session.connection().execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ORDER_OF_COMMITS})
    session.add_all(pending)
    session.flush()
    pending.clear()
