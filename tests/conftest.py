"""Fixtures for every test: a fresh database of each kind, a clock that stands still, a controller's context."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from service.actions.context import Context
from service.settings import Settings
from service.store.blobs import Blobs
from service.store.engine import Store
from tests.clocks import SimulatedClock
from tests.databases import Databases, PostgresMissing, describe, server

KINDS = ("sqlite", "postgresql")


def pytest_report_header() -> list[str]:
    return describe()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A running PostgreSQL server. Without one the test is skipped, and in CI it fails."""
    try:
        running = server()
        url = running.__enter__()
    except PostgresMissing as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"in CI both databases are tested, but {error}")
        pytest.skip(str(error))
    yield url
    running.__exit__(None, None, None)


@pytest.fixture(scope="session")
def sqlite_databases(tmp_path_factory: pytest.TempPathFactory) -> Databases:
    return Databases(tmp_path_factory.mktemp("sqlite"), None)


@pytest.fixture(scope="session")
def postgres_databases(tmp_path_factory: pytest.TempPathFactory, postgres_url: str) -> Iterator[Databases]:
    databases = Databases(tmp_path_factory.mktemp("postgresql"), postgres_url)
    yield databases
    databases.close()


@pytest.fixture(params=KINDS)
def databases(request: pytest.FixtureRequest) -> Databases:
    """Makes databases of one kind; a test that uses it runs on both."""
    name = "sqlite_databases" if request.param == "sqlite" else "postgres_databases"
    found: Databases = request.getfixturevalue(name)
    return found


@pytest.fixture
def database_url(databases: Databases) -> Iterator[str]:
    """A fresh, migrated database; a test that uses it runs on both kinds."""
    url = databases.fresh()
    yield url
    databases.drop(url)


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    """A fresh store; a test that uses it runs on both kinds of database."""
    opened = Store(database_url)
    yield opened
    opened.close()


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def ctx(store: Store, clock: SimulatedClock, tmp_path: Path) -> Context:
    """A controller's context on a fresh store; a test that uses it runs on both kinds of database."""
    return context(store, clock, tmp_path)


@pytest.fixture
def sqlite_ctx(sqlite_databases: Databases, clock: SimulatedClock, tmp_path: Path) -> Iterator[Context]:
    """A controller's context on SQLite alone, for tests of what lies above the store."""
    url = sqlite_databases.fresh()
    opened = Store(url)
    yield context(opened, clock, tmp_path)
    opened.close()
    sqlite_databases.drop(url)


def context(store: Store, clock: SimulatedClock, directory: Path) -> Context:
    settings = Settings(data_dir=directory / "data", secret=SecretStr("a secret of tests, 32 characters"), demo=True)
    return Context(store=store, blobs=Blobs(directory / "data" / "blobs"), clock=clock, settings=settings)
