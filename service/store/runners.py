"""Runners and their slots."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlmodel import Session, col, select

from service.domain.states import RUNNER, SLOT, RunnerState, SlotState, sources
from service.store import events, guards
from service.store.tables import Runner, Slot

_RESTARTED = "restarted"


def by_token(session: Session, sha256: str) -> Runner | None:
    """Return the runner with this token's hash, revoked or not."""
    return session.exec(select(Runner).where(col(Runner.token_sha256) == sha256)).one_or_none()


def find(session: Session, name_or_id: str) -> Runner | None:
    """Return a runner by id, or else by name."""
    row = guards.fresh(session, Runner, name_or_id)
    if row is not None:
        return row
    return session.exec(select(Runner).where(col(Runner.name) == name_or_id)).one_or_none()


def everyone(session: Session) -> Sequence[Runner]:
    """Return all runners by name."""
    return session.exec(select(Runner).order_by(col(Runner.name))).all()


def serving(session: Session, hardware: str, build_kind: str) -> list[Runner]:
    """Return the runners that are online, are not to drain, and can launch such a build on such hardware."""
    return [
        row
        for row in everyone(session)
        if row.state is RunnerState.ONLINE
        and not row.drain_requested
        and hardware in row.hardware
        and build_kind in row.build_kinds
    ]


def slots(session: Session, runner_ids: Collection[str]) -> Sequence[Slot]:
    """Return the slots of some runners, by index."""
    query = select(Slot).where(col(Slot.runner_id).in_(runner_ids)).order_by(col(Slot.runner_id), col(Slot.index))
    return session.exec(query.execution_options(populate_existing=True)).all()


def slot(session: Session, runner_id: str, index: int) -> Slot | None:
    """Return one slot of a runner as it is now."""
    query = select(Slot).where(col(Slot.runner_id) == runner_id, col(Slot.index) == index)
    return session.exec(query.execution_options(populate_existing=True)).one_or_none()


def move(session: Session, at: datetime, runner_id: str, target: RunnerState, **values: Any) -> bool:
    """Bring a runner into a state if the table allows it from where it is; return whether it did."""
    states = sources(RUNNER, target)
    moved = guards.update_one(
        session, Runner, col(Runner.id) == runner_id, col(Runner.state).in_(states), state=target, **values
    )
    if moved:
        events.record(session, at, "runner", runner_id, target)
    return moved


def silence(session: Session, at: datetime, runner: Runner, target: RunnerState, horizon: datetime) -> bool:
    """Mark a runner as gone unless it was heard of since ``horizon`` after all; return whether it was marked."""
    moved = guards.update_one(
        session,
        Runner,
        col(Runner.id) == runner.id,
        col(Runner.state).in_([state for state in sources(RUNNER, target) if state is runner.state]),
        col(Runner.last_seen_at) < horizon,
        state=target,
    )
    if moved:
        events.record(session, at, "runner", runner.id, target)
    return moved


def see(session: Session, runner_id: str, at: datetime, **values: Any) -> bool:
    """Note that a runner was heard of; False if it was revoked meanwhile."""
    return guards.update_one(
        session,
        Runner,
        col(Runner.id) == runner_id,
        col(Runner.state) != RunnerState.REVOKED,
        last_seen_at=at,
        **values,
    )


def request_drain(session: Session, at: datetime, runner_id: str, on: bool, by: str) -> bool:
    """Set whether a runner is to take nothing new; False if that is so already."""
    changed = guards.update_one(
        session, Runner, col(Runner.id) == runner_id, col(Runner.drain_requested).is_(not on), drain_requested=on
    )
    if changed:
        events.record(session, at, "runner", runner_id, "drain_requested" if on else "drain_ended", by=by)
    return changed


def reboot(session: Session, at: datetime, runner: Runner, boot_id: str) -> None:
    """Note that a runner lives a new life; its former one can't come back (see former_boots)."""
    guards.update_one(session, Runner, col(Runner.id) == runner.id, boot_id=boot_id)
    events.record(session, at, "runner", runner.id, _RESTARTED, boot_id=boot_id, former=runner.boot_id)


def former_boots(session: Session, runner_id: str) -> set[str]:
    """Return the boot ids of a runner's former lives."""
    rows = events.of_subject(session, "runner", runner_id, [f"runner.{_RESTARTED}"])
    return {row.data["former"] for row in rows if row.data["former"] is not None}


def reserve(session: Session, at: datetime, slot_id: str, attempt_id: str) -> bool:
    """Give a free slot to an attempt; return False if it is not free."""
    moved = guards.update_one(
        session,
        Slot,
        col(Slot.id) == slot_id,
        col(Slot.state).in_(sources(SLOT, SlotState.RESERVED)),
        state=SlotState.RESERVED,
        attempt_id=attempt_id,
    )
    if moved:
        events.record(session, at, "slot", slot_id, SlotState.RESERVED, attempt_id=attempt_id)
    return moved


def occupy(session: Session, at: datetime, slot_id: str, attempt_id: str) -> bool:
    """Note that an attempt has begun to use the slot that was reserved for it; False if it is not reserved for it."""
    moved = guards.update_one(
        session,
        Slot,
        col(Slot.id) == slot_id,
        col(Slot.attempt_id) == attempt_id,
        col(Slot.state).in_(sources(SLOT, SlotState.BUSY)),
        state=SlotState.BUSY,
    )
    if moved:
        events.record(session, at, "slot", slot_id, SlotState.BUSY, attempt_id=attempt_id)
    return moved


def free(session: Session, at: datetime, slot_id: str, attempt_id: str) -> bool:
    """Take a slot back from an attempt; False if it belongs to another by now, or to none."""
    moved = guards.update_one(
        session,
        Slot,
        col(Slot.id) == slot_id,
        col(Slot.attempt_id) == attempt_id,
        col(Slot.state).in_(sources(SLOT, SlotState.FREE)),
        state=SlotState.FREE,
        attempt_id=None,
    )
    if moved:
        events.record(session, at, "slot", slot_id, SlotState.FREE, attempt_id=attempt_id)
    return moved
