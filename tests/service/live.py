"""A real server for an app, in a thread of this process, on a free port of 127.0.0.1."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn
from fastapi import FastAPI

from service.commands import local
from service.commands.serving import Server

LIMIT_S = 30.0


@dataclass(frozen=True)
class Live:
    """Where the server is; ``stop`` sends it what SIGTERM would, and ``ended`` is set when it has left."""

    url: str
    server: Server
    ended: threading.Event

    def stop(self) -> None:
        self.server.handle_exit(15, None)


@contextmanager
def serving(app: FastAPI) -> Iterator[Live]:
    """Serve the app for the time of the block."""
    ready, ended = threading.Event(), threading.Event()
    listener = local.bind("127.0.0.1", 0)
    url = local.address(listener)
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=LIMIT_S)  # type: ignore[arg-type]
    server = Server(config, app.state.stopping, ready.set)

    def run() -> None:
        server.run(sockets=[listener])
        ended.set()

    thread = threading.Thread(target=run, name="live server")
    thread.start()
    try:
        assert ready.wait(LIMIT_S), "the server did not start"
        yield Live(url, server, ended)
    finally:
        server.handle_exit(15, None)
        thread.join(LIMIT_S)
        listener.close()
        assert not thread.is_alive(), "the server did not stop"
