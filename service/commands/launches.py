"""``backslide launches``: the evidence, one server start at a time."""

from typing import Annotated, Any

import typer

from service.commands.output import print_json, print_line, print_table
from service.commands.session import AsJson, client_of

app = typer.Typer(help="Launches: what was measured.", no_args_is_help=True)
_COLUMNS = (
    *(
        "id",
        "build",
        "recipe",
        "workload",
        "time factor>",
        "validity",
        "TPOT p50 ms>",
        "ITL p50 ms>",
        "TTFT p50 ms>",
        "tok/s>",
    ),
    *("runner", "created"),
)
_SHOWN = ("tpot_p50_ms", "itl_p50_ms", "ttft_p50_ms", "output_tok_s")


@app.command("list")
def list_launches(
    ctx: typer.Context,
    build: Annotated[str | None, typer.Option(help="Name or id.")] = None,
    cell: Annotated[str | None, typer.Option(help="Digest of a cell.")] = None,
    request: Annotated[str | None, typer.Option(help="Id of a request.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    as_json: AsJson = False,
) -> None:
    """List launches, newest first; invalid ones are listed and never used."""
    found = client_of(ctx).get("launches", build=build, cell=cell, request=request, limit=limit)
    if as_json:
        print_json(found)
    else:
        print_table(_COLUMNS, map(_row, found), "No launch fits: 'backslide requests submit BASE HEAD' asks for some.")


@app.command("show")
def show(
    ctx: typer.Context, launch_id: Annotated[str, typer.Argument(help="Id of a launch.")], as_json: AsJson = False
) -> None:
    """Show one launch: numbers, validity with reasons, and the evidence."""
    client = client_of(ctx)
    launch = client.get(f"launches/{launch_id}")
    if as_json:
        print_json(launch)
        return
    print_table(_COLUMNS, [_row(launch)], "")
    print()
    _show_evidence(launch)
    print()
    numbers = [one["number"] for one in launch["repetitions"]]
    rows = (
        [name, value, *(one["metrics"].get(name) for one in launch["repetitions"])]
        for name, value in launch["metrics"].items()
    )
    print_table(
        ("metric", "launch>", *(f"repetition {n}>" for n in numbers)), rows, "No metric: too few valid repetitions."
    )
    print()
    print_line(f"{client.url}/launches/{launch_id}")


def _show_evidence(launch: dict[str, Any]) -> None:
    identity = launch["report"]["identity"]
    kind = "simulated" if launch["simulated"] else f"real, {launch['hardware']}"
    print_line(f"{kind}, time compressed {launch['time_compression']:g}×, request {launch['request_id']}")
    print_line(f"server {identity['version']}, pid {identity['pid']}, served as {identity['served_model_name']}")
    print_line(f"command {' '.join(identity['command'])}")
    for one in launch["repetitions"]:
        reasons = "; ".join(f"{reason['code']}: {reason['message']}" for reason in one["reasons"])
        print_line(
            f"repetition {one['number']}: {one['validity']}{f' ({reasons})' if reasons else ''}, {one['raw_log']}"
        )
    files = ", ".join(f"{one['name']} ({one['size_bytes']} bytes)" for one in launch["artifacts"])
    print_line(f"files {files}")


def _row(item: dict[str, Any]) -> list[Any]:
    cell = item["cell"]
    values = ["–" if item["metrics"].get(name) is None else f"{item['metrics'][name]:.2f}" for name in _SHOWN]
    place = f"{item['runner_name']}/{item['slot_index']}"
    names = [item["build"]["name"], cell["recipe"]["name"], cell["workload"]["name"]]
    return [item["id"], *names, item["time_compression"], item["validity"], *values, place, item["created_at"][:19]]
