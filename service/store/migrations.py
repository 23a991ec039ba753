"""Bringing a database to the schema of this version. The steps come with the package, so that any directory will do."""

from importlib import resources
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from service.contract.errors import Conflict
from service.store.engine import Store, translated

_ONE_AT_A_TIME = 0x6D696772  # any number that nothing else locks


def upgrade(store: Store, revision: str = "head") -> None:
    """Bring the database to a revision (the newest by default); nothing happens if it is there.

    Raises Conflict if the database belongs to a newer version of this program, and leaves it alone.
    """
    known = {script.revision for script in _scripts().walk_revisions()}
    found = current(store)
    if found is not None and found not in known:
        raise Conflict(
            f"The database has schema {found}, which this version ({head()}) does not know: "
            "it was used by a newer one. Run that, or restore a backup."
        )
    with translated(), store.engine.begin() as connection:
        if store.dialect == "postgresql":  # two controllers may start at once; SQLite locks the whole file anyway
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ONE_AT_A_TIME})
        command.upgrade(_config(connection), revision)


def downgrade(store: Store, revision: str) -> None:
    """Take the database back to a revision; ``base`` removes every table."""
    with translated(), store.engine.begin() as connection:
        command.downgrade(_config(connection), revision)


def current(store: Store) -> str | None:
    """Return the database's revision; None for an empty one."""
    with translated(), store.engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def head() -> str:
    """Return the newest revision that this version knows."""
    found = _scripts().get_current_head()
    if found is None:
        raise RuntimeError("the package holds no migrations")
    return found


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(str(resources.files("migrations")))).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())
