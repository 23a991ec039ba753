"""Connections and transactions: one writer at a time on SQLite, ordinary transactions on PostgreSQL."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg.errors
from sqlalchemy import create_engine, event
from sqlalchemy.engine import Engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlmodel import Session

from service.contract.errors import BackslideError, Busy, DiskFull, InvalidInput

__all__ = ["Address", "Session", "Store", "address", "translated"]

BUSY_TIMEOUT_MS = 10_000


@dataclass(frozen=True)
class Address:
    """What a database URL points at: ``file`` is SQLite's file, ``shown`` the URL without its password."""

    dialect: str
    file: Path | None
    shown: str


def address(url: str) -> Address:
    """Read a database URL without connecting."""
    parsed = make_url(url)
    file = Path(parsed.database) if parsed.get_backend_name() == "sqlite" and parsed.database else None
    return Address(parsed.get_backend_name(), file, parsed.render_as_string(hide_password=True))


class Store:
    """The database. ``write()`` commits at its end or leaves nothing; ``read()`` never writes."""

    def __init__(self, url: str) -> None:
        self.url = _with_driver(url)
        self.engine = _connect(self.url)

    @property
    def dialect(self) -> str:
        """``sqlite`` or ``postgresql``."""
        return self.engine.dialect.name

    @contextmanager
    def write(self) -> Iterator[Session]:
        """One transaction. On SQLite it takes the write lock at once (BEGIN IMMEDIATE): a read that turns into a
        write can't wait for a lock. Raises Busy when the lock was not had in time, DiskFull when there is no room."""
        with self._session(write=True) as session:
            yield session
            session.commit()

    @contextmanager
    def read(self) -> Iterator[Session]:
        """One consistent view: two queries see the same rows, whatever is written between them. Nothing done in it is
        kept; on PostgreSQL a write in it fails."""
        with self._session(write=False) as session:
            yield session

    @contextmanager
    def _session(self, *, write: bool) -> Iterator[Session]:
        options: dict[str, Any] = {"backslide_write": write}
        if not write and self.dialect == "postgresql":
            # By default each query would see what was committed just before it. SQLite's WAL keeps one view by itself.
            options |= {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        with (
            translated(),
            self.engine.connect().execution_options(**options) as connection,
            Session(connection, expire_on_commit=False) as session,
        ):
            yield session

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()


@contextmanager
def translated() -> Iterator[None]:
    """Let errors of the database that mean something to a caller come out as ours: Busy, DiskFull."""
    try:
        yield
    except DBAPIError as error:
        ours = _translate(error)
        if ours is None:
            raise
        raise ours from error


def _with_driver(url: str) -> str:
    for prefix in ("postgres://", "postgresql://"):
        if url.startswith(prefix):
            return "postgresql+psycopg://" + url.removeprefix(prefix)
    return url


def _connect(url: str) -> Engine:
    backend = _backend(url)
    if backend not in ("sqlite", "postgresql"):
        raise InvalidInput(f"A database is sqlite:///FILE or postgresql://USER@HOST/NAME, not {backend}://…")
    if backend != "sqlite":
        return create_engine(url, pool_size=10, max_overflow=20, pool_pre_ping=True)
    engine = create_engine(url, connect_args={"check_same_thread": False, "timeout": BUSY_TIMEOUT_MS / 1000})

    @event.listens_for(engine, "connect")
    def _on_connect(connection: sqlite3.Connection, _record: Any) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves
        for pragma in ("journal_mode=WAL", f"busy_timeout={BUSY_TIMEOUT_MS}", "foreign_keys=ON", "synchronous=NORMAL"):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Any) -> None:
        write = connection.get_execution_options().get("backslide_write", True)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _backend(url: str) -> str:
    try:
        return make_url(url).get_backend_name()
    except ArgumentError as error:
        raise InvalidInput(f"{url!r} is no database URL: sqlite:///FILE or postgresql://USER@HOST/NAME.") from error


def _translate(error: DBAPIError) -> BackslideError | None:
    cause = error.orig
    text = str(cause)
    if isinstance(cause, sqlite3.OperationalError):
        if cause.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return Busy(f"The database stayed locked for {BUSY_TIMEOUT_MS / 1000:.0f} s.")
        if cause.sqlite_errorcode & 0xFF == sqlite3.SQLITE_FULL:
            return DiskFull(f"The database has no room: {text}.")
    if isinstance(cause, psycopg.errors.DiskFull):
        return DiskFull(f"The database has no room: {text}.")
    if isinstance(cause, (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)):
        return Busy(f"The database asks to try again: {text}.")
    if isinstance(cause, psycopg.OperationalError):
        return Busy(f"The database can't be reached: {text.splitlines()[0] if text else 'the connection was lost'}.")
    return None
