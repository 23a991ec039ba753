"""``backslide serve`` and ``backslide migrate``: the controller's process, and its database's schema.

What the controller is made of is imported inside the functions: client commands share this command line, and must start
quickly.
"""

from typing import Annotated

import typer

from service.commands.output import print_line

Host = Annotated[str | None, typer.Option(help="Address to listen on [BACKSLIDE_HOST, 127.0.0.1].")]
Port = Annotated[int | None, typer.Option(min=0, max=65535, help="0 takes a free one [BACKSLIDE_PORT, 8400].")]
NoMigrate = Annotated[bool, typer.Option("--no-migrate", help="Refuse to start on an old schema; don't upgrade it.")]


def serve(host: Host = None, port: Port = None, no_migrate: NoMigrate = False) -> None:
    """Run the controller: REST, runner protocol, pages. Brings the database's schema up to date first."""
    from service.commands import local, serving

    serving.run(local.read_settings(host=host, port=port), migrate_first=not no_migrate)


def migrate() -> None:
    """Bring the database's schema up to date. Safe to repeat."""
    from service.actions import migrate as schema
    from service.commands import local

    with local.opened(local.read_settings()) as ctx:
        schema.upgrade(ctx)
        print_line(f"The {ctx.store.dialect} database's schema is up to date.")
