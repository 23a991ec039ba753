"""``backslide bisect``: start, list, show, watch, explain, pause, resume, cancel, report."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from service.clock import SystemClock
from service.commands import bisect_showing, bisect_watching, requests
from service.commands.client import BadInput, Client, CommandFailed
from service.commands.output import print_json, print_line, print_table
from service.commands.session import AsJson, client_of

app = typer.Typer(help="Bisects: which version made it worse.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(help="Id of a bisect, such as bis_0123456789abcdef.")]
_COLUMNS = ("id", "state", "between", "metric", "cell", "launches>", "created", "what is known")


@app.command("start")
def start(
    ctx: typer.Context,
    good: Annotated[str, typer.Argument(help="The last version that is known to be good: name or id of a build.")],
    bad: Annotated[str, typer.Argument(help="A later version that is known to be bad.")],
    recipe: requests.Recipe = None,
    workload: requests.Workload = None,
    hardware: requests.Hardware = None,
    metric: Annotated[str | None, typer.Option(help="What became worse; 'gsm8k' is accuracy.")] = None,
    lineup: Annotated[
        str | None, typer.Option(help="Builds from good to bad, with commas; all registered ones between, if left out.")
    ] = None,
    smallest: Annotated[
        float, typer.Option(min=0, max=0.5, help="The smallest change that matters: 0.02 is 2 %.")
    ] = 0.02,
    confidence: Annotated[
        float, typer.Option(min=0.5, max=0.999, help="Needed before a step is put to the proof.")
    ] = 0.95,
    max_launches: Annotated[int, typer.Option(min=4, max=1000, help="What it may cost at most.")] = 40,
    gsm8k: Annotated[
        bool, typer.Option(help="Also measure the accuracy of every build that is launched, once.")
    ] = False,
    seed: requests.Seed = None,
    priority: Annotated[int, typer.Option(min=-100, max=100, help="Comparisons have 0.")] = -10,
    watch: Annotated[
        bool | None, typer.Option("--watch/--no-watch", help="Follow it; so by default in a terminal.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Search the lineup between a good and a bad version for the step that made a metric worse, and prove it."""
    client = client_of(ctx)
    body: dict[str, Any] = {"hardware": hardware, "metric": metric, "lineup": lineup.split(",") if lineup else None}
    body |= {"smallest": smallest, "confidence": confidence, "max_launches": max_launches, "gsm8k": gsm8k}
    body |= {
        "good": good,
        "bad": bad,
        "recipe": recipe or requests.only(client, "recipes"),
        "workload": workload or requests.only(client, "workloads"),
        "seed": seed,
        "priority": priority,
    }
    view = client.post("bisects", {name: value for name, value in body.items() if value is not None})
    if not (sys.stdout.isatty() if watch is None else watch):
        print_json(view) if as_json else print_line(view["id"])
        return
    if not as_json:
        print_line(view["id"])
    _show_end(client, follow(client, view["id"], quiet=as_json), as_json)


@app.command("list")
def list_bisects(
    ctx: typer.Context, limit: Annotated[int, typer.Option(min=1, max=200)] = 50, as_json: AsJson = False
) -> None:
    """List bisects, newest first."""
    found = client_of(ctx).get("bisects", limit=limit)
    if as_json:
        print_json(found)
    else:
        rows = map(bisect_showing.summary_row, found)
        print_table(_COLUMNS, rows, "Nothing was bisected yet: 'backslide bisect start GOOD BAD'.")


@app.command("show")
def show(ctx: typer.Context, bisect_id: Id, as_json: AsJson = False) -> None:
    """Show a bisect as it is now: what is known, every version, what it cost."""
    client = client_of(ctx)
    view = client.get(f"bisects/{bisect_id}")
    print_json(view) if as_json else bisect_showing.show(view, client.url)


@app.command("watch")
def watch_bisect(ctx: typer.Context, bisect_id: Id, as_json: AsJson = False) -> None:
    """Follow a bisect live until it ends; Ctrl-C leaves it running. With --json: wait, then print it."""
    client = client_of(ctx)
    _show_end(client, follow(client, bisect_id, quiet=as_json), as_json)


@app.command("explain")
def explain(ctx: typer.Context, bisect_id: Id, as_json: AsJson = False) -> None:
    """Print the log of a bisect: every decision with what was known and why, and every launch between them."""
    client = client_of(ctx)
    view = client.get(f"bisects/{bisect_id}")
    if as_json:
        print_json(view["steps"])
        return
    print_line(bisect_showing.headline(view))
    for line in bisect_showing.explain(view):
        print_line(line)
    for line in bisect_showing.outcome(view):
        print_line(line)


@app.command("pause")
def pause(ctx: typer.Context, bisect_id: Id, as_json: AsJson = False) -> None:
    """Order nothing new; what runs is finished. Everything that was measured is kept."""
    _change(ctx, bisect_id, "pause", as_json)


@app.command("resume")
def resume(ctx: typer.Context, bisect_id: Id, as_json: AsJson = False) -> None:
    """Go on after a pause."""
    _change(ctx, bisect_id, "resume", as_json)


@app.command("cancel")
def cancel(ctx: typer.Context, bisect_id: Id, as_json: AsJson = False) -> None:
    """End a bisect without an answer; what was measured stays."""
    _change(ctx, bisect_id, "cancel", as_json)


@app.command("report")
def report(
    ctx: typer.Context,
    bisect_id: Id,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file; standard output if left out.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the report of a bisect: Markdown that is fit for a GitHub issue."""
    text = client_of(ctx).download(f"bisects/{bisect_id}/report").decode()
    if output is not None:
        try:
            output.write_text(text, encoding="utf-8")
        except OSError as error:
            raise BadInput(f"{output} can't be written: {error.strerror}.") from error
    if as_json:
        print_json({"id": bisect_id, "file": str(output) if output else None, "report": text})
    elif output is None:
        print(text, end="", flush=True)
    else:
        print_line(f"Written to {output}.")


def follow(client: Client, bisect_id: str, *, quiet: bool = False) -> dict[str, Any]:
    """Follow a bisect to its end and return it. Ctrl-C raises CommandFailed: the bisect goes on without a watcher."""
    watch = bisect_watching.BisectWatch(client, bisect_id, SystemClock())
    try:
        return bisect_watching.wait(watch) if quiet else bisect_watching.follow(watch)
    except KeyboardInterrupt:
        raise CommandFailed(
            f"Stopped watching; {bisect_id} goes on. 'backslide bisect watch {bisect_id}' follows it again, "
            f"'backslide bisect pause {bisect_id}' holds it, 'backslide bisect cancel {bisect_id}' ends it."
        ) from None


def _show_end(client: Client, view: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(view)
    else:
        print()
        bisect_showing.show(view, client.url)
    if view["state"] != "ended":
        reason = f": {view['reason']}" if view["reason"] else ""
        raise CommandFailed(f"The bisect {view['id']} ended {view['state']}{reason}")


def _change(ctx: typer.Context, bisect_id: str, what: str, as_json: bool) -> None:
    client = client_of(ctx)
    view = client.post(f"bisects/{bisect_id}/{what}")
    if as_json:
        print_json(view)
        return
    print_line(f"{view['id']}: {bisect_showing.state_of(view)}. {bisect_showing.cost(view)}")
