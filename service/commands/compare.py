"""``backslide compare BASE HEAD``: what is stored about two builds; with ``--measure``, measured first."""

from typing import Annotated

import typer

from service.commands import comparison, requests
from service.commands.client import CommandFailed
from service.commands.output import print_json, print_line
from service.commands.session import AsJson, client_of


def compare(
    ctx: typer.Context,
    base: Annotated[str, typer.Argument(help="Name or id of a build.")],
    head: Annotated[str, typer.Argument(help="Name or id of a build.")],
    recipe: requests.Recipe = None,
    workload: requests.Workload = None,
    metric: requests.Metric = None,
    cell: Annotated[str | None, typer.Option(help="Digest of a cell, 6 digits or more.")] = None,
    request: Annotated[str | None, typer.Option(help="Only the launches of this request.")] = None,
    measure: Annotated[bool, typer.Option("--measure", help="Submit a request for it first.")] = False,
    blocks: requests.Blocks = 2,
    hardware: requests.Hardware = None,
    seed: requests.Seed = None,
    gsm8k: requests.Gsm8k = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="With --measure: follow it and show the result.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Compare two builds by every stored launch of theirs in one cell."""
    client = client_of(ctx)
    if not measure:
        view = client.get(
            f"compare/{base}...{head}", metric=metric, cell=cell, recipe=recipe, workload=workload, request=request
        )
    else:
        body = {"hardware": hardware, "blocks": blocks, "metric": metric, "seed": seed, "gsm8k": gsm8k}
        submitted = requests.post_comparison(client, base, head, recipe, workload, key=None, **body)
        if not wait:
            print_json(submitted) if as_json else print_line(submitted["id"])
            return
        if not as_json:
            print_line(f"Measuring as {submitted['id']}.")
        ended = requests.follow(client, submitted["id"], quiet=as_json)
        if ended["state"] != "done":
            raise CommandFailed(requests.why(ended))
        view = client.get(f"requests/{submitted['id']}/comparison", metric=metric)
    if as_json:
        print_json(view)
    else:
        comparison.show(view, client.url)
