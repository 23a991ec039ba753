"""A controller in this process, on an empty SQLite database."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from service.actions import migrate, tokens
from service.actions.context import Context, open_context
from service.app import create_app
from service.settings import Settings
from tests.service.api import things
from tests.service.api.inprocess import InProcess

Bearer = Callable[[str], dict[str, str]]


@pytest.fixture
def clock() -> things.StillClock:
    return things.StillClock()


@pytest.fixture
def ctx(tmp_path: Path, clock: things.StillClock) -> Iterator[Context]:
    settings = Settings(
        data_dir=tmp_path / "data", secret=SecretStr("s" * 40), reap_every_s=3600, max_artifact_bytes=2**20
    )
    with open_context(settings, clock) as context:
        migrate.upgrade(context)
        yield context


@pytest.fixture
def app(ctx: Context) -> FastAPI:
    return create_app(ctx)


@pytest.fixture
def client(app: FastAPI) -> Iterator[InProcess]:
    found = InProcess(app)
    yield found
    found.close()


@pytest.fixture
def bearer(ctx: Context) -> Bearer:
    """Headers with a fresh token of a role."""
    made: dict[str, dict[str, str]] = {}

    def header(role: str) -> dict[str, str]:
        if role not in made:
            made[role] = {"Authorization": f"Bearer {tokens.create_user_token(ctx, f'a {role}', role)}"}
        return made[role]

    return header


@pytest.fixture
def catalog(client: InProcess, bearer: Bearer) -> None:
    """Two builds, a recipe and a workload."""
    bodies = (
        ("builds", things.BUILD),
        ("builds", things.OTHER_BUILD),
        ("recipes", things.RECIPE),
        ("workloads", things.WORKLOAD),
    )
    for group, body in bodies:
        assert client.post(f"/api/v1/{group}", json=body, headers=bearer("submitter")).status_code == 200
