"""``backslide token``: users' tokens. Opens the database directly: whoever can do that needs no token to make one."""

from typing import Annotated

import typer

from service.commands.output import print_json, print_line, print_table
from service.commands.session import AsJson

# What opens the database is imported inside the functions: client commands share this command line, and must start
# quickly.
app = typer.Typer(help="Users' tokens; run it where the controller's database is.", no_args_is_help=True)


@app.command("create")
def create(
    name: Annotated[str, typer.Option(help="Whose token it is; unique.")],
    role: Annotated[
        str, typer.Option(help="viewer, submitter, operator or admin; each may do what those before it may.")
    ] = ("submitter"),
    as_json: AsJson = False,
) -> None:
    """Make a token and show it, this once: only its hash is kept."""
    from service.actions import tokens
    from service.commands import local

    with local.opened(local.read_settings()) as ctx:
        local.check_schema(ctx)
        token = tokens.create_user_token(ctx, name, role)
    if as_json:
        print_json({"name": name, "role": role, "token": token})
    else:
        print_line(token)


@app.command("list")
def list_tokens(as_json: AsJson = False) -> None:
    """List users' tokens: names, roles and last four characters."""
    from service.actions import tokens
    from service.commands import local

    with local.opened(local.read_settings()) as ctx:
        local.check_schema(ctx)
        found = [view.model_dump(mode="json") for view in tokens.list_user_tokens(ctx)]
    if as_json:
        print_json(found)
        return
    rows = (
        [
            item["id"],
            item["name"],
            item["role"],
            f"…{item['last4']}",
            item["created_at"][:19],
            _ended(item["revoked_at"]),
        ]
        for item in found
    )
    empty = "There is no token: 'backslide token create --name NAME --role ROLE'."
    print_table(("id", "name", "role", "token", "created", "revoked"), rows, empty)


@app.command("revoke")
def revoke(name: Annotated[str, typer.Argument(help="Name or id.")], as_json: AsJson = False) -> None:
    """End a token at once."""
    from service.actions import tokens
    from service.commands import local

    with local.opened(local.read_settings()) as ctx:
        local.check_schema(ctx)
        view = tokens.revoke_user_token(ctx, name)
    if as_json:
        print_json(view.model_dump(mode="json"))
    else:
        print_line(f"The token {view.name} ({view.role}) opens nothing any more.")


def _ended(revoked_at: str | None) -> str:
    return revoked_at[:19] if revoked_at else ""
