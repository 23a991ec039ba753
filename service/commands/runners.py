"""``backslide runners``: the agents, and the tokens with which new ones enrol."""

from typing import Annotated, Any

import typer

from service.commands.output import print_json, print_line, print_table
from service.commands.session import AsJson, client_of

app = typer.Typer(help="Runners: the agents on the GPU nodes.", no_args_is_help=True)
_COLUMNS = ("id", "name", "host", "state", "hardware", "builds", "slots", "disk free GB>", "agent", "last seen")


@app.command("list")
def list_runners(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List every runner with its slots."""
    found = client_of(ctx).get("runners")
    if as_json:
        print_json(found)
        return
    empty = "No runner has enrolled: 'backslide runners enrolment-token', then 'backslide-runner enrol' on the node."
    print_table(_COLUMNS, map(_row, found), empty)


@app.command("enrolment-token")
def enrolment_token(
    ctx: typer.Context,
    ttl_s: Annotated[float, typer.Option("--ttl", min=1, help="How long it may wait to be used, in seconds.")] = 3600,
    as_json: AsJson = False,
) -> None:
    """Make a token with which one runner can enrol, once."""
    made = client_of(ctx).post("runners/enrolment-tokens", {"ttl_s": ttl_s})
    if as_json:
        print_json(made)
    else:
        print_line(made["token"])


@app.command("drain")
def drain(
    ctx: typer.Context,
    runner: Annotated[str, typer.Argument(help="Name or id.")],
    undo: Annotated[bool, typer.Option("--undo", help="Let it work again.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let a runner finish what it does and take nothing new."""
    _change(ctx, runner, "drain", {"on": not undo}, as_json)


@app.command("revoke")
def revoke(
    ctx: typer.Context, runner: Annotated[str, typer.Argument(help="Name or id.")], as_json: AsJson = False
) -> None:
    """Take a runner's token away, for good."""
    _change(ctx, runner, "revoke", {}, as_json)


def _change(ctx: typer.Context, runner: str, what: str, body: dict[str, Any], as_json: bool) -> None:
    client = client_of(ctx)
    ids = [item["id"] for item in client.get("runners") if runner in (item["id"], item["name"])]
    changed = client.post(f"runners/{ids[0] if ids else runner}/{what}", body)
    if as_json:
        print_json(changed)
    else:
        print_table(_COLUMNS, [_row(changed)], "")


def _row(item: dict[str, Any]) -> list[Any]:
    slots = " ".join(f"{slot['index']}:{slot['state']}" for slot in item["slots"])
    free = None if item["disk_free_bytes"] is None else round(item["disk_free_bytes"] / 1e9)
    state = item["state"] + (" (drain asked)" if item["drain_requested"] and item["state"] != "draining" else "")
    kinds = [", ".join(item["hardware"]), ", ".join(item["build_kinds"])]
    seen = (item["last_seen_at"] or "never")[:19]
    return [item["id"], item["name"], item["hostname"], state, *kinds, slots, free, item["agent_version"], seen]
