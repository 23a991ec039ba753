"""Fixtures: a live controller, a registered catalog, a runner, a measured request."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from service.actions import migrate, tokens
from service.actions.context import Context, open_context
from service.app import create_app
from service.clock import SystemClock
from service.commands import watching
from service.settings import Settings
from tests.service.commands.shell import CATALOG, SECRET, Node, Shell
from tests.service.live import Live, serving


@pytest.fixture
def ctx(tmp_path: Path) -> Iterator[Context]:
    settings = Settings(data_dir=tmp_path / "data", secret=SecretStr(SECRET))
    with open_context(settings, SystemClock()) as context:
        migrate.upgrade(context)
        yield context


@pytest.fixture
def live(ctx: Context, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    with serving(create_app(ctx)) as found:
        monkeypatch.setenv("BACKSLIDE_URL", found.url)
        monkeypatch.setenv("BACKSLIDE_TOKEN", tokens.create_user_token(ctx, "me", "admin"))
        monkeypatch.setattr(watching, "POLL_S", 0.05)
        yield found


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


@pytest.fixture
def catalog(live: Live, shell: Shell, tmp_path: Path) -> Path:
    """A registered catalog."""
    file = tmp_path / "catalog.toml"
    file.write_text(CATALOG)
    for group in ("builds", "recipes", "workloads"):
        shell(group, "register", str(file))
    return file


@pytest.fixture
def node(live: Live, shell: Shell, catalog: Path) -> Iterator[Node]:
    found = Node(live, shell)
    yield found
    found.http.close()


@pytest.fixture
def measured(node: Node, shell: Shell) -> dict[str, Any]:
    """A request whose four launches were measured."""
    request = shell.json("requests", "submit", "v0.18.0", "v0.19.1", "--blocks", "1")
    node.measure(4)
    found: dict[str, Any] = shell.json("requests", "show", request["id"])
    return found
