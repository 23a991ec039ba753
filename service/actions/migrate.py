"""Bringing the database to this version's schema."""

from service.actions.context import Context
from service.settings import Settings
from service.store import engine, migrations
from service.store.engine import Address


def upgrade(ctx: Context) -> None:
    """Bring the database to this version's schema; raises Conflict, and changes nothing, if it is a newer one's."""
    migrations.upgrade(ctx.store)


def current(ctx: Context) -> str | None:
    """Return the database's revision; None for an empty database."""
    return migrations.current(ctx.store)


def head() -> str:
    """Return the revision of this version's schema."""
    return migrations.head()


def address(settings: Settings) -> Address:
    """Return what the settings' database URL points at, without connecting."""
    return engine.address(settings.resolved_database_url)
