"""What every client command shares: where the controller is, and whether to print JSON."""

from dataclasses import dataclass
from typing import Annotated

import typer

from service.commands.client import DEFAULT_URL, Client

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON only.")]
Url = Annotated[str, typer.Option(envvar="BACKSLIDE_URL", help="The controller's address.")]
Token = Annotated[str | None, typer.Option(envvar="BACKSLIDE_TOKEN", help="A user's token; reads need none.")]


@dataclass(frozen=True)
class Connection:
    """Address and token of the controller."""

    url: str
    token: str | None


def connect(ctx: typer.Context, url: Url = DEFAULT_URL, token: Token = None) -> None:
    """Bisects vLLM serving regressions: measures builds, compares them, keeps the evidence."""
    ctx.obj = Connection(url, token)


def client_of(ctx: typer.Context) -> Client:
    """Return a client for the controller that the command line names; it is closed when the command ends."""
    connection = ctx.obj
    assert isinstance(connection, Connection)
    client = Client(connection.url, connection.token)
    ctx.call_on_close(client.close)
    return client
