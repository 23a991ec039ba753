"""Bisects and their steps. A step is added once: its number guards it."""

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlmodel import Session, and_, col, or_, select

from service.domain.states import BISECT, BisectState, JobState, is_final, sources
from service.store import evaluations, events, guards
from service.store.tables import Bisect, BisectStep, Job

OPEN = tuple(state for state in BisectState if not is_final(BISECT, state))
"""States in which a bisect goes on."""


def of_request(session: Session, request_id: str) -> Bisect | None:
    """Return the bisect that owns a request; None for a request of another kind."""
    query = select(Bisect).where(col(Bisect.request_id) == request_id)
    return session.exec(query.execution_options(populate_existing=True)).one_or_none()


def going_on(session: Session) -> Sequence[str]:
    """Return the ids of bisects that have not ended and are not paused, oldest first."""
    query = select(Bisect.id).where(col(Bisect.state).in_(OPEN), col(Bisect.paused).is_(False))
    return session.exec(query.order_by(col(Bisect.created_at), col(Bisect.id))).all()


def paused_requests(session: Session) -> set[str]:
    """Return the requests of paused bisects: none of their jobs is handed out."""
    return set(session.exec(select(Bisect.request_id).where(col(Bisect.paused).is_(True))).all())


def newest(session: Session, limit: int, before: Bisect | None) -> Sequence[Bisect]:
    """Return up to ``limit`` bisects, newest first, from the one after ``before`` on."""
    query = select(Bisect)
    if before is not None:
        query = query.where(
            or_(
                col(Bisect.created_at) < before.created_at,
                and_(col(Bisect.created_at) == before.created_at, col(Bisect.id) < before.id),
            )
        )
    return session.exec(query.order_by(col(Bisect.created_at).desc(), col(Bisect.id).desc()).limit(limit)).all()


def steps(session: Session, bisect_id: str) -> Sequence[BisectStep]:
    """Return a bisect's steps in order."""
    query = select(BisectStep).where(col(BisectStep.bisect_id) == bisect_id).order_by(col(BisectStep.number))
    return session.exec(query).all()


def phases(session: Session, bisect_id: str) -> dict[int, str]:
    """Return what each block of a bisect's jobs was ordered for."""
    query = select(BisectStep.orders).where(col(BisectStep.bisect_id) == bisect_id)
    return {order["block"]: order["phase"] for orders in session.exec(query).all() for order in orders}


def last_steps(session: Session, bisect_ids: Collection[str]) -> dict[str, BisectStep]:
    """Return the newest step of each bisect that has one."""
    query = (
        select(BisectStep)
        .join(Bisect, col(Bisect.id) == col(BisectStep.bisect_id))
        .where(col(Bisect.id).in_(bisect_ids), col(BisectStep.number) == col(Bisect.last_step))
    )
    return {row.bisect_id: row for row in session.exec(query).all()}


def add_step(session: Session, row: Bisect, step: BisectStep, seen: str, state: BisectState, **values: Any) -> bool:
    """Add the step that follows ``row.last_step`` and bring the bisect into a state; False, with nothing changed, if
    it has a newer step already, ended, or was paused meanwhile."""
    moved = _update(session, row, state, seen=seen, last_step=step.number, **values)
    if moved:
        guards.insert(session, step)
        note = {"step": step.number, "phase": step.phase, "orders": step.orders, "reason": step.reason}
        events.record(session, step.at, "bisect", row.id, "step", row.request_id, **note)
        if state is not row.state:
            _note(session, step.at, row, state, **values)
    return moved


def see(session: Session, row: Bisect, seen: str) -> bool:
    """Note what was known when the planner found nothing to do; False if somebody overtook the caller."""
    return _update(session, row, row.state, seen=seen)


def end(session: Session, at: datetime, row: Bisect, target: BisectState, reason: str | None, **values: Any) -> bool:
    """End a bisect, paused or not; False if it had ended."""
    ended = guards.update_one(
        session,
        Bisect,
        col(Bisect.id) == row.id,
        col(Bisect.state).in_(sources(BISECT, target)),
        state=target,
        reason=reason,
        ended_at=at,
        **values,
    )
    if ended:
        _note(session, at, row, target, reason=reason, **values)
    return ended


def pause(session: Session, at: datetime, row: Bisect, on: bool, by: str) -> bool:
    """Set or take back the flag; False if that is so already or the bisect has ended."""
    changed = guards.update_one(
        session,
        Bisect,
        col(Bisect.id) == row.id,
        col(Bisect.state).in_(OPEN),
        col(Bisect.paused).is_(not on),
        paused=on,
    )
    if changed:
        events.record(session, at, "bisect", row.id, "paused" if on else "resumed", row.request_id, by=by)
    return changed


def evaluated(session: Session, cell_digest: str, build_ids: Collection[str], tries: int) -> set[str]:
    """Return the builds whose accuracy in a cell is known, is on its way, or was undefined ``tries`` times."""
    scores = Counter[str]()
    for row in evaluations.of_builds(session, cell_digest, build_ids):
        scores[row.build_id] += 1 if row.strict_marks is None else tries
    coming = select(Job.build_id).where(
        col(Job.cell_digest) == cell_digest,
        col(Job.build_id).in_(build_ids),
        col(Job.evaluate).is_(True),
        col(Job.state).in_((JobState.WAITING, JobState.QUEUED, JobState.ACTIVE)),
    )
    return {key for key, count in scores.items() if count >= tries} | set(session.exec(coming).all())


def _update(session: Session, row: Bisect, state: BisectState, **values: Any) -> bool:
    allowed = [before for before in OPEN if before is state or before in sources(BISECT, state)]
    return guards.update_one(
        session,
        Bisect,
        col(Bisect.id) == row.id,
        col(Bisect.last_step) == row.last_step,
        col(Bisect.state).in_(allowed),
        col(Bisect.paused).is_(False),
        state=state,
        **values,
    )


def _note(session: Session, at: datetime, row: Bisect, state: BisectState, **data: Any) -> None:
    shown = {key: value for key, value in data.items() if key in ("answer", "reason") and value is not None}
    events.record(session, at, "bisect", row.id, state, row.request_id, **shown)
