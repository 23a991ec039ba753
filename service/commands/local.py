"""The controller's own side of the command line: settings, the database, and the listening socket."""

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError

from service.actions import migrate
from service.actions.context import Context, open_context
from service.clock import SystemClock
from service.commands.client import BadInput, CommandFailed
from service.contract.errors import BackslideError
from service.settings import Settings

BACKLOG = 512


def read_settings(**changes: Any) -> Settings:
    """Return the settings from BACKSLIDE_* variables, with ``changes`` over them; None changes nothing.

    Raises BadInput that names every variable that makes no sense.
    """
    try:
        return Settings(**{name: value for name, value in changes.items() if value is not None})
    except ValidationError as error:
        lines = [
            f"BACKSLIDE_{'_'.join(str(part) for part in entry['loc']).upper()}: {entry['msg'].lower()}, "
            f"got {entry.get('input')!r:.80}"
            for entry in error.errors()
        ]
        raise BadInput("The settings make no sense.\n  " + "\n  ".join(lines)) from None


@contextmanager
def opened(settings: Settings) -> Iterator[Context]:
    """Open the controller's store; errors of ours come out as CommandFailed, with their codes."""
    try:
        with open_context(settings, SystemClock()) as ctx:
            yield ctx
    except BackslideError as error:
        failed = BadInput if error.status < 500 else CommandFailed
        raise failed(f"{error.message} [{error.code}]") from error
    except OSError as error:
        raise BadInput(f"{settings.data_dir} can't be used: {error.strerror}. Set BACKSLIDE_DATA_DIR.") from error


def check_schema(ctx: Context) -> None:
    """Raise BadInput unless the database has exactly this version's schema."""
    found, wanted = migrate.current(ctx), migrate.head()
    if found != wanted:
        state = f"is at revision {found}" if found else "is empty"
        raise BadInput(
            f"The {ctx.store.dialect} database {state}; this version of Backslide works with revision {wanted}.\n"
            "'backslide migrate' brings an older one up to date; a newer one needs a newer Backslide."
        )


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket, bound before anything else is done. Raises BadInput when the port can't be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise BadInput(_no_port(host, port, error)) from error
    return listener


def address(listener: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _no_port(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"Port {port} on {host} is in use: another controller, or something else, listens there.\n"
            f"Stop it ('ss -ltnp sport = :{port}' names it), or choose another port: 'backslide serve --port N' or "
            "BACKSLIDE_PORT."
        )
    if error.errno == errno.EACCES:
        return f"Port {port} may not be used by this user: choose one of 1024 or higher with --port."
    return f"{host}:{port} can't be listened on ({error.strerror or error}): choose another --host or --port."
