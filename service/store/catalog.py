"""Builds, recipes, workloads and cells. A name may be registered again: its newest registration is what it means."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from sqlalchemy import inspect
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, SQLModel, col, func, select

from service.store.guards import fresh
from service.store.tables import BuildRow, CellRow, RecipeRow, WorkloadRow

Named = TypeVar("Named", BuildRow, RecipeRow, WorkloadRow)


def insert_if_absent(session: Session, row: SQLModel) -> bool:
    """Add a row unless one with the same key or unique columns is there; return whether it was added.

    Two transactions that add the same row at once leave one, and neither fails.
    """
    table = type(row)
    values = row.model_dump()
    dialect = session.get_bind().dialect.name
    build: Any = postgresql.insert if dialect == "postgresql" else sqlite.insert
    key = inspect(table).primary_key[0]
    added = session.exec(build(table).values(**values).on_conflict_do_nothing().returning(key)).first()
    return added is not None


def register(session: Session, row: Named, same: dict[str, Any], at: datetime) -> Named:
    """Add a row, or find the one with the ``same`` columns, and make it the newest of its name; return it as stored."""
    insert_if_absent(session, row)
    table = type(row)
    columns = [col(getattr(table, name)) == value for name, value in same.items()]
    stored = session.exec(select(table).where(*columns)).one()
    others = select(func.max(col(table.registered_at))).where(col(table.name) == row.name, col(table.id) != stored.id)
    newest = session.exec(others).one()
    if newest is not None and stored.registered_at <= newest:
        # Strictly later than every other of the name, whatever the clock says.
        stored.registered_at = max(at, newest + timedelta(microseconds=1))
        session.add(stored)
        session.flush()
    return stored


def find(session: Session, table: type[Named], name_or_id: str, kind: str | None = None) -> Named | None:
    """Return the row with this id, or else the newest with this name (and, for builds, of this kind)."""
    row = fresh(session, table, name_or_id)
    if row is not None:
        return row if kind is None or getattr(row, "kind", kind) == kind else None
    query = select(table).where(col(table.name) == name_or_id)
    if kind is not None:
        query = query.where(col(BuildRow.kind) == kind)
    return session.exec(query.order_by(col(table.registered_at).desc(), col(table.id)).limit(1)).one_or_none()


def all_of(session: Session, table: type[Named]) -> Sequence[Named]:
    """Return every registration, newest first."""
    return session.exec(select(table).order_by(col(table.registered_at).desc(), col(table.id))).all()


def some_of(session: Session, table: type[Named], ids: set[str]) -> dict[str, Named]:
    """Return rows by id."""
    return {row.id: row for row in session.exec(select(table).where(col(table.id).in_(ids))).all()}


def cells(session: Session, digests: set[str]) -> dict[str, CellRow]:
    """Return cells by digest."""
    return {row.digest: row for row in session.exec(select(CellRow).where(col(CellRow.digest).in_(digests))).all()}
