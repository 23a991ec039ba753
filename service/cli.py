"""``backslide``: the controller's process and its administration, and a client that speaks only REST.

Exit status: 0 done, 1 failed or a negative answer, 2 wrong usage or bad input, 3 no controller answers.
"""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from service import VERSION
from service.commands import bisect, catalog, launches, requests, runners, tokens
from service.commands.client import DEFAULT_URL, CommandFailed
from service.commands.compare import compare
from service.commands.doctor import doctor
from service.commands.output import plain
from service.commands.recompute import recompute
from service.commands.serve import migrate, serve
from service.commands.session import Token, Url, connect


def main() -> None:
    """Run the command line of this process and exit."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit status; what failed is said on standard error."""
    try:
        command_line()(list(arguments), prog_name="backslide")
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else 1
    except CommandFailed as failed:
        for line in str(failed).splitlines():
            print(plain(line), file=sys.stderr)
        return failed.exit_code
    return 0


def command_line() -> typer.Typer:
    """Return the tree of commands."""
    app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
    app.callback()(_root)
    for command in (serve, migrate, compare, recompute, doctor):
        app.command()(command)
    app.add_typer(tokens.app, name="token")
    app.add_typer(bisect.app, name="bisect")
    app.add_typer(requests.app, name="requests")
    for group in catalog.GROUPS:
        app.add_typer(getattr(catalog, group), name=group)
    app.add_typer(launches.app, name="launches")
    app.add_typer(runners.app, name="runners")
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"backslide {VERSION}")
        raise typer.Exit


def _root(
    ctx: typer.Context,
    url: Url = DEFAULT_URL,
    token: Token = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Finds which version of vLLM made serving slower: measures builds, compares them, keeps the evidence."""
    connect(ctx, url, token)


if __name__ == "__main__":
    main()
