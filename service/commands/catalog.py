"""``backslide builds``, ``recipes`` and ``workloads``: list them, or register those of a TOML file."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic_core import to_jsonable_python

from service.commands.client import BadInput
from service.commands.output import print_json, print_table
from service.commands.session import AsJson, client_of

GROUPS = ("builds", "recipes", "workloads")
File = Annotated[Path, typer.Argument(help="TOML with [[builds]], [[recipes]] or [[workloads]] tables.")]

builds = typer.Typer(help="Builds: what is launched.", no_args_is_help=True)
recipes = typer.Typer(help="Recipes: how builds are served.", no_args_is_help=True)
workloads = typer.Typer(help="Workloads: the load.", no_args_is_help=True)


def _build_row(item: dict[str, Any]) -> list[Any]:
    source = item["source"]
    what = source.get("profile") or source.get("wheel_set")
    return [item["name"], item["version"], source["kind"], what, source["sha256"][:12], item["registered_at"][:19]]


def _recipe_row(item: dict[str, Any]) -> list[Any]:
    body = item["recipe"]
    served = [body["build_kind"], body["model"], body["hardware"], body["tensor_parallel"], body["time_compression"]]
    return [item["name"], *served, item["digest"][:12]]


def _workload_row(item: dict[str, Any]) -> list[Any]:
    body = item["workload"]
    lengths = [body["prefix_tokens"], body["suffix_tokens"], body["output_tokens"], body["concurrency"]]
    return [item["name"], *lengths, body["requests"], body["repetitions"], item["digest"][:12]]


_COLUMNS = {
    "builds": ("name", "version", "kind", "source", "sha256", "registered"),
    "recipes": ("name", "builds", "model", "hardware", "tp>", "time factor>", "digest"),
    "workloads": ("name", "prefix>", "suffix>", "output>", "concurrency>", "requests>", "repetitions>", "digest"),
}
_ROWS: dict[str, Callable[[dict[str, Any]], list[Any]]] = {
    "builds": _build_row,
    "recipes": _recipe_row,
    "workloads": _workload_row,
}


@builds.command("list")
def list_builds(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List every registered build."""
    _list(ctx, "builds", as_json)


@builds.command("register")
def register_builds(ctx: typer.Context, file: File, as_json: AsJson = False) -> None:
    """Register the [[builds]] of a file; the same again changes nothing."""
    _register(ctx, "builds", file, as_json)


@recipes.command("list")
def list_recipes(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List every registered recipe."""
    _list(ctx, "recipes", as_json)


@recipes.command("register")
def register_recipes(ctx: typer.Context, file: File, as_json: AsJson = False) -> None:
    """Register the [[recipes]] of a file; the same again changes nothing."""
    _register(ctx, "recipes", file, as_json)


@workloads.command("list")
def list_workloads(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List every registered workload."""
    _list(ctx, "workloads", as_json)


@workloads.command("register")
def register_workloads(ctx: typer.Context, file: File, as_json: AsJson = False) -> None:
    """Register the [[workloads]] of a file; the same again changes nothing."""
    _register(ctx, "workloads", file, as_json)


def read_tables(file: Path, group: str) -> list[dict[str, Any]]:
    """Return the tables of one group of a TOML file. Raises BadInput that names the file and what is wrong with it."""
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{file} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{file} is not UTF-8: byte {error.start} can't be decoded.") from error
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{file} is not valid TOML: {error}.") from error
    unknown = sorted(content.keys() - set(GROUPS))
    if unknown:
        raise BadInput(f"{file} has {', '.join(unknown)}; it may hold [[builds]], [[recipes]] and [[workloads]] only.")
    tables = content.get(group, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise BadInput(f"{file}: {group} must be a list of tables, each under [[{group}]].")
    if not tables:
        raise BadInput(f"{file} has no [[{group}]].")
    return [to_jsonable_python(table) for table in tables]  # TOML has dates, JSON has not


def _list(ctx: typer.Context, group: str, as_json: bool) -> None:
    found = client_of(ctx).get(group)
    if as_json:
        print_json(found)
        return
    empty = f"No {group} are registered: 'backslide {group} register FILE.toml'."
    print_table(_COLUMNS[group], map(_ROWS[group], found), empty)


def _register(ctx: typer.Context, group: str, file: Path, as_json: bool) -> None:
    tables = read_tables(file, group)
    client = client_of(ctx)
    done = [client.post(group, table) for table in tables]
    if as_json:
        print_json(done)
    else:
        print_table(_COLUMNS[group], map(_ROWS[group], done), "")
