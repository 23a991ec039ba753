"""The controller's process: checks, socket, schema, app and server, in the order in which they can fail."""

import logging
import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType

import uvicorn

from service.actions import migrate
from service.app import check_secret, create_app
from service.commands import local
from service.commands.output import print_line
from service.settings import Settings

GRACE_S = 10
KEEP_ALIVE_S = 75
"""Longer than clients keep an idle connection: it is never the controller that closes one under a request."""
_QUIET = ("uvicorn.error", "alembic")


class Server(uvicorn.Server):
    """Sets ``stopping`` as soon as a signal comes, so that held calls end at once; calls ``on_ready`` when it listens;
    leaves with exit status 0 after SIGTERM and SIGINT, and without waiting for anybody after the second one."""

    def __init__(self, config: uvicorn.Config, stopping: threading.Event, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._stopping = stopping
        self._on_ready = on_ready

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._stopping.set()
        self.force_exit = self.should_exit and sig in (signal.SIGINT, signal.SIGTERM)
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()


def run(settings: Settings, *, migrate_first: bool) -> None:
    """Serve until a signal comes. Raises BadInput for a default secret, a port in use, or a schema that is newer than
    this version (or older, unless ``migrate_first``)."""
    with local.opened(settings) as ctx:
        check_secret(settings)
        with local.bind(settings.host, settings.port) as listener:
            if migrate_first:
                migrate.upgrade(ctx)
            else:
                local.check_schema(ctx)
            _log_to_stderr()
            app = create_app(ctx)
            ready = f"Backslide {app.version} is ready at {local.address(listener)} ({ctx.store.dialect})"
            config = uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=GRACE_S,
            )
            Server(config, app.state.stopping, lambda: print_line(ready)).run(sockets=[listener])


def _log_to_stderr() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
