"""Schema steps, on both databases, with rows in them."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import func, inspect, select, text
from sqlmodel import SQLModel

from service.actions import tokens
from service.actions.context import Context
from service.contract.errors import Conflict
from service.contract.failures import FailureClass
from service.store import migrations
from service.store.engine import Store
from tests.bisecting import Bisecting
from tests.clocks import SimulatedClock
from tests.conftest import context
from tests.databases import Databases
from tests.workshop import Workshop

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def empty(databases: Databases) -> Iterator[Store]:
    url = databases.empty()
    store = Store(url)
    yield store
    store.close()
    databases.drop(url)


def tables(store: Store) -> set[str]:
    return set(inspect(store.engine).get_table_names()) - {"alembic_version"}


def fill(ctx: Context) -> None:
    """Put at least one row into every table."""
    shop = Workshop(ctx)
    shop.stock()
    shop.submit()
    runner = shop.runner()
    shop.finish(shop.work(runner))
    shop.fail(shop.work(runner), FailureClass.SERVER_CRASH)
    tokens.create_user_token(ctx, "ada", "admin")
    bisecting = Bisecting(shop, runner, {"v0.18.0": 20.0, "v0.19.1": 29.0}, right={"v0.18.0": 90, "v0.19.1": 90})
    bisecting.start(bad="v0.19.1", gsm8k=True, priority=1)
    bisecting.step()


def test_the_migrated_schema_is_the_tables(empty: Store) -> None:
    migrations.upgrade(empty)
    with empty.engine.connect() as connection:
        options = {"compare_type": True, "compare_server_default": True}
        found = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(found, SQLModel.metadata) == []


def test_up_and_down_and_up_again_with_rows_in_every_table(empty: Store, clock: SimulatedClock, tmp_path: Path) -> None:
    assert migrations.current(empty) is None
    migrations.upgrade(empty)
    assert migrations.current(empty) == migrations.head()
    fill(context(empty, clock, tmp_path))
    names = tables(empty)
    assert names == set(SQLModel.metadata.tables)
    with empty.engine.connect() as connection:
        for name in names:
            counted = select(func.count()).select_from(SQLModel.metadata.tables[name])
            assert connection.execute(counted).scalar_one() > 0, name
    migrations.upgrade(empty)  # nothing happens
    migrations.downgrade(empty, "base")
    assert (tables(empty), migrations.current(empty)) == (set(), None)
    migrations.upgrade(empty)
    fill(context(empty, clock, tmp_path))


def test_what_the_spine_stored_is_there_after_the_bisects_came_and_went(
    empty: Store, clock: SimulatedClock, tmp_path: Path
) -> None:
    """Jobs that were there before the columns were added have their defaults, and what refers to them still does."""
    migrations.upgrade(empty)
    fill(context(empty, clock, tmp_path))
    kept = ("request", "job", "attempt", "launch", "repetition", "artifact", "event")
    before = rows(empty, kept)
    migrations.downgrade(empty, "0001")
    assert not {"bisect", "bisect_step", "evaluation"} & tables(empty)
    assert rows(empty, kept) == before
    migrations.upgrade(empty)
    assert rows(empty, kept) == before
    with empty.engine.connect() as connection:
        found = connection.execute(text("SELECT DISTINCT evaluate, avoided_slot_id FROM job")).all()
    assert [(bool(evaluate), slot_id) for evaluate, slot_id in found] == [(False, None)]


def rows(store: Store, names: tuple[str, ...]) -> dict[str, int]:
    with store.engine.connect() as connection:
        return {name: connection.execute(text(f"SELECT count(*) FROM {name}")).scalar_one() for name in names}


def test_a_database_of_a_newer_version_is_left_alone(empty: Store) -> None:
    migrations.upgrade(empty)
    with empty.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(Conflict, match="newer"):
        migrations.upgrade(empty)
    assert migrations.current(empty) == "9999"


def test_migrations_are_found_from_any_directory(tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from service.store import migrations\n"
        "from service.store.engine import Store\n"
        "store = Store('sqlite:///here.sqlite')\n"
        "migrations.upgrade(store)\n"
        "print(migrations.current(store))\n"
        "store.close()\n"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout.strip(), run.stderr) == (0, migrations.head(), "")
