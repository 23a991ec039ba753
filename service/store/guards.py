"""The guarded UPDATE: a change happens to exactly the row it was decided for, or not at all.

Every change of a state and every write of an attempt goes through ``update_one``; the fence is compared in ``fenced``
and nowhere else.
"""

from itertools import groupby
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, inspect
from sqlmodel import Session, SQLModel, col, select, update

Row = TypeVar("Row", bound=SQLModel)
Predicate = ColumnElement[bool]
"""A condition that a guarded UPDATE repeats; made by the store, handed on by actions."""


def fenced(column: Any, fence: int) -> Predicate:
    """Return the predicate that a row still has this fence: whoever holds an older one may not write."""
    return col(column) == fence


def update_one(session: Session, table: type[SQLModel], *where: Predicate, **values: Any) -> bool:
    """Change the one row that meets all conditions, and return whether there was one.

    Conditions must name a primary key. Rows that were read before keep their old values: read them again.
    """
    statement = update(table).where(*where).values(**values).execution_options(synchronize_session=False)
    return bool(session.exec(statement).rowcount == 1)


def insert(session: Session, *rows: SQLModel) -> None:
    """Add rows now, kind after kind in this order (foreign keys are checked at once)."""
    for _, alike in groupby(rows, key=type):
        session.add_all(alike)
        session.flush()


def locked(session: Session, table: type[Row], key: str) -> Row | None:
    """Return the row as it is now and keep others from changing it until the transaction ends; None if there is none.

    PostgreSQL locks the row; on SQLite a write transaction has the whole database. Locks are taken in the order
    runner, request, bisect, job (by block and position), attempt, slot, so that two transactions never wait for each
    other.
    """
    return _read(session, table, key, lock=True)


def fresh(session: Session, table: type[Row], key: str) -> Row | None:
    """Return the row as it is now, without a lock; None if there is none."""
    return _read(session, table, key, lock=False)


def _read(session: Session, table: type[Row], key: str, *, lock: bool) -> Row | None:
    key_column: Any = inspect(table).primary_key[0]
    statement = select(table).where(key_column == key).execution_options(populate_existing=True)
    if lock:
        statement = statement.with_for_update(key_share=True)
    row: Row | None = session.exec(statement).one_or_none()
    return row
