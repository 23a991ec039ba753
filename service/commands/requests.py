"""``backslide requests``: submit, list, show, watch, cancel, comparison."""

from typing import Annotated, Any

import typer

from service.clock import SystemClock
from service.commands import comparison, watching
from service.commands.client import BadInput, Client, CommandFailed
from service.commands.output import print_json, print_line, print_table
from service.commands.session import AsJson, client_of

app = typer.Typer(help="Requests: what somebody wants to know.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(help="Id of a request, such as req_0123456789abcdef.")]
Recipe = Annotated[str | None, typer.Option(help="Name or id; may be left out when only one is registered.")]
Workload = Annotated[str | None, typer.Option(help="Name or id; may be left out when only one is registered.")]
Hardware = Annotated[str | None, typer.Option(help="Class of machine; the recipe's if left out.")]
Blocks = Annotated[int, typer.Option(min=1, max=50, help="One block is four launches: base, head, head, base.")]
Metric = Annotated[str | None, typer.Option(help="What the verdict is about; GET /api/v1/metrics names them.")]
Seed = Annotated[
    int | None,
    typer.Option(min=0, help="Seeds the noise of simulated builds; left out, a request draws its own."),
]
Gsm8k = Annotated[bool, typer.Option(help="Ask both builds gsm8k's questions, once each.")]
_COLUMNS = ("id", "state", "base", "head", "recipe", "workload", "metric", "launches>", "by", "created")


@app.command("submit")
def submit(
    ctx: typer.Context,
    base: Annotated[str, typer.Argument(help="Name or id of a build.")],
    head: Annotated[str, typer.Argument(help="Name or id of a build.")],
    recipe: Recipe = None,
    workload: Workload = None,
    hardware: Hardware = None,
    blocks: Blocks = 2,
    metric: Metric = None,
    seed: Seed = None,
    priority: Annotated[int, typer.Option(min=-100, max=100)] = 0,
    gsm8k: Gsm8k = False,
    key: Annotated[str | None, typer.Option("--idempotency-key", help="The same key: the same request.")] = None,
    as_json: AsJson = False,
) -> None:
    """Ask for a comparison to be measured."""
    body = {"hardware": hardware, "blocks": blocks, "metric": metric, "seed": seed}
    body |= {"priority": priority, "gsm8k": gsm8k}
    request = post_comparison(client_of(ctx), base, head, recipe, workload, key=key, **body)
    if as_json:
        print_json(request)
    else:
        print_line(request["id"])
        print_line(
            f"{len(request['jobs'])} launches are wanted; 'backslide requests watch {request['id']}' follows them."
        )
        if waits := watching.why_it_waits(client_of(ctx), request):
            print_line(waits)


@app.command("list")
def list_requests(
    ctx: typer.Context, limit: Annotated[int, typer.Option(min=1, max=200)] = 50, as_json: AsJson = False
) -> None:
    """List requests, newest first."""
    found = client_of(ctx).get("requests", limit=limit)
    if as_json:
        print_json(found)
    else:
        print_table(_COLUMNS, map(_row, found), "Nothing was asked for yet: 'backslide requests submit BASE HEAD'.")


@app.command("show")
def show(ctx: typer.Context, request_id: Id, as_json: AsJson = False) -> None:
    """Show a request with its jobs, as it is now."""
    watch = watching.Watch(client_of(ctx), request_id, SystemClock())
    if as_json:
        print_json(watch.request)
        return
    print_table(_COLUMNS, [_row(watch.request)], "")
    print()
    for job in watch.request["jobs"]:
        print_line(watching.describe(watch, job))
    if watch.request["reason"]:
        print_line(watch.request["reason"])


@app.command("watch")
def watch_request(ctx: typer.Context, request_id: Id, as_json: AsJson = False) -> None:
    """Follow a request live until it ends; Ctrl-C leaves it running. With --json: wait, then print it."""
    client = client_of(ctx)
    request = client.get(f"requests/{request_id}")
    if not as_json and request["state"] == "open" and (waits := watching.why_it_waits(client, request)):
        print_line(waits)
    ended = follow(client, request_id, quiet=as_json)
    if as_json:
        print_json(ended)
    if ended["state"] != "done":
        raise CommandFailed(why(ended))


@app.command("cancel")
def cancel(ctx: typer.Context, request_id: Id, as_json: AsJson = False) -> None:
    """Cancel what has not ended; what was measured stays."""
    request = client_of(ctx).post(f"requests/{request_id}/cancel")
    if as_json:
        print_json(request)
    else:
        print_table(_COLUMNS, [_row(request)], "")


@app.command("comparison")
def show_comparison(ctx: typer.Context, request_id: Id, metric: Metric = None, as_json: AsJson = False) -> None:
    """Show what a request found, from its own launches alone."""
    client = client_of(ctx)
    view = client.get(f"requests/{request_id}/comparison", metric=metric)
    if as_json:
        print_json(view)
    else:
        comparison.show(view, client.url)


def post_comparison(
    client: Client, base: str, head: str, recipe: str | None, workload: str | None, *, key: str | None, **body: Any
) -> dict[str, Any]:
    """Submit a comparison and return the request. Raises BadInput when recipe or workload is left open and the
    controller knows several."""
    body |= {
        "kind": "comparison",
        "base": base,
        "head": head,
        "recipe": recipe or only(client, "recipes"),
        "workload": workload or only(client, "workloads"),
    }
    headers = {"Idempotency-Key": key} if key else None
    sent = {name: value for name, value in body.items() if value is not None}
    request: dict[str, Any] = client.post("requests", sent, headers)
    return request


def follow(client: Client, request_id: str, *, quiet: bool = False) -> dict[str, Any]:
    """Follow a request to its end and return it. Ctrl-C raises CommandFailed: the request runs on without a watcher."""
    watch = watching.Watch(client, request_id, SystemClock())
    try:
        if quiet:
            return watching.wait(watch)
        return watching.follow(watch)
    except KeyboardInterrupt:
        raise CommandFailed(
            f"Stopped watching; {request_id} goes on. 'backslide requests watch {request_id}' follows it again, "
            f"'backslide requests cancel {request_id}' ends it."
        ) from None


def only(client: Client, group: str) -> str:
    """Return the name of the only recipe or workload there is. Raises BadInput when there are several, or none."""
    names = sorted({str(item["name"]) for item in client.get(group)})
    if len(names) == 1:
        return names[0]
    option = group.removesuffix("s")
    if not names:
        raise BadInput(f"No {option} is registered: 'backslide {group} register FILE.toml'.")
    raise BadInput(f"Which {option}? Name one with --{option}: {', '.join(names)}.")


def why(request: dict[str, Any]) -> str:
    """Return how a request ended, and the reason where there is one."""
    reason = f": {request['reason']}" if request["reason"] else ""
    return f"The request {request['id']} ended {request['state']}{reason}"


def _row(item: dict[str, Any]) -> list[Any]:
    by_state = item["jobs_by_state"]
    launches = f"{by_state.get('done', 0)}/{sum(by_state.values())}"
    state = item["state"] + (" (cancel asked)" if item["cancel_requested"] and item["state"] == "open" else "")
    names = [item["base"]["name"], item["head"]["name"], item["recipe"], item["workload"], item["metric"]]
    return [item["id"], state, *names, launches, item["submitter"], item["created_at"][:19]]
