"""``backslide doctor``: what this machine's controller would run with, and whether that works."""

import platform
import shutil
from pathlib import Path
from typing import Any, Literal

import typer

from service import VERSION
from service.commands.client import CommandFailed, Refused, Unreachable
from service.commands.output import print_json, print_table
from service.commands.session import AsJson, client_of

# What opens the database is imported inside the functions: client commands share this command line, and must start
# quickly.
LOW_DISK_BYTES = 2 * 2**30
Finding = tuple[str, Literal["ok", "note", "failed"], str]


def doctor(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Check settings, database, disk and controller; exit 1 when something is wrong. Secrets are never shown."""
    from service.commands import local

    settings = local.read_settings()
    findings: list[Finding] = [("version", "ok", f"backslide {VERSION}, Python {platform.python_version()}")]
    findings += [("setting", "ok", line) for line in redacted(settings)]
    findings += [_secret(settings), _disk(settings.data_dir), _database(settings), _controller(ctx)]
    if as_json:
        print_json([{"what": what, "state": state, "detail": detail} for what, state, detail in findings])
    else:
        print_table(("what", "state", "detail"), findings, "")
    failed = [what for what, state, _ in findings if state == "failed"]
    if failed:
        raise CommandFailed(f"Not in order: {', '.join(failed)}.")


def redacted(settings: Any) -> list[str]:
    """Return the settings as ``name = value``, without the secret and without a password in the database's URL."""
    from service.actions import migrate

    values = settings.model_dump()
    values["database_url"] = migrate.address(settings).shown
    return [f"{name} = {value}" for name, value in values.items()]


def _secret(settings: Any) -> Finding:
    from service.app import check_secret
    from service.contract.errors import InvalidInput

    try:
        check_secret(settings)
    except InvalidInput as error:
        return "secret", "failed", error.message
    return "secret", "ok", "demo mode takes any" if settings.demo else "set"


def _disk(data_dir: Path) -> Finding:
    existing = next(path for path in (data_dir.resolve(), *data_dir.resolve().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    where = f"{free / 1e9:.1f} GB free at {existing}"
    return ("disk", "failed", f"{where}: raw logs need room") if free < LOW_DISK_BYTES else ("disk", "ok", where)


def _database(settings: Any) -> Finding:
    from service.actions import migrate
    from service.commands import local

    address = migrate.address(settings)
    if address.file is not None and not address.file.exists():
        return "database", "note", f"{address.file} does not exist yet; 'backslide serve' makes it"
    try:
        with local.opened(settings) as ctx:
            found, wanted = migrate.current(ctx), migrate.head()
    except CommandFailed as error:
        return "database", "failed", str(error)
    except Exception as error:  # noqa: BLE001  whatever the driver raises is the answer to the question
        return "database", "failed", str(error).splitlines()[0]
    if found != wanted:
        return "database", "note", f"{address.dialect} at revision {found}; this version works with {wanted}"
    return "database", "ok", f"{address.dialect} at revision {found}"


def _controller(ctx: typer.Context) -> Finding:
    client = client_of(ctx)
    try:
        health = client.get("health")
    except Unreachable:
        return "controller", "note", f"none answers at {client.url}"
    except (Refused, CommandFailed) as error:
        return "controller", "failed", str(error)
    if health["version"] != VERSION:
        return "controller", "note", f"{client.url} runs version {health['version']}, this is {VERSION}"
    return "controller", "ok", f"{client.url} runs version {health['version']}"
