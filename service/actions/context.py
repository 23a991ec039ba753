"""What every action gets: store, files, clock and settings, passed in."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from service.contract.clock import Clock
from service.settings import Settings
from service.store.blobs import Blobs
from service.store.engine import Store


@dataclass(frozen=True)
class Context:
    """The controller's effects, in one place, so that tests can pass their own."""

    store: Store
    blobs: Blobs
    clock: Clock
    settings: Settings


@dataclass(frozen=True)
class Caller:
    """Who asks: the name of a user's token and its role."""

    name: str
    role: str


@contextmanager
def open_context(settings: Settings, clock: Clock) -> Iterator[Context]:
    """Open the store and the files that the settings name, and close them at the end. The data directory is made;
    the database is neither made nor migrated (service.actions.migrate). Raises OSError where the directory can't be."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    store = Store(settings.resolved_database_url)
    try:
        yield Context(store=store, blobs=Blobs(settings.data_dir / "blobs"), clock=clock, settings=settings)
    finally:
        store.close()
