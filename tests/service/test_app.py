"""The app as a whole: what it refuses to start with, what it serves, and that it ends cleanly."""

import asyncio
import threading
import tomllib
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

import service
from service.actions import migrate, reap
from service.actions.context import Context, open_context
from service.app import create_app
from service.clock import SystemClock
from service.contract.errors import InvalidInput
from service.settings import DEFAULT_SECRET, Settings
from tests.service.live import serving

LIMIT_S = 20.0


def test_the_version_is_the_projects() -> None:
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"]
    assert project["version"] == service.VERSION


@pytest.mark.parametrize(
    ("secret", "said"), [(DEFAULT_SECRET, "BACKSLIDE_SECRET is not set"), ("short", "5 characters")]
)
def test_a_known_or_short_secret_is_refused_outside_demo_mode(tmp_path: Path, secret: str, said: str) -> None:
    real = Settings(data_dir=tmp_path, secret=SecretStr(secret))
    with open_context(real, SystemClock()) as ctx, pytest.raises(InvalidInput, match=said):
        create_app(ctx)
    demo = Settings(data_dir=tmp_path, secret=SecretStr(secret), demo=True)
    with open_context(demo, SystemClock()) as ctx:
        create_app(ctx)


def test_it_serves_rest_pages_and_static_files_and_reaps_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reaped = threading.Event()

    def noticed(_ctx: Context) -> int:
        reaped.set()
        return 0

    monkeypatch.setattr(reap, "reap", noticed)
    settings = Settings(data_dir=tmp_path, secret=SecretStr("s" * 40))
    with open_context(settings, SystemClock()) as ctx:
        migrate.upgrade(ctx)
        with serving(create_app(ctx)) as live, httpx.Client(base_url=live.url, trust_env=False) as client:
            assert client.get("/api/v1/health").json()["status"] == "ok"
            page = client.get("/", headers={"Accept": "text/html"})
            assert page.status_code == 200
            assert "<html" in page.text
            assert client.get("/index.json").status_code == 200
            assert client.get("/static/pages.css").status_code == 200
            assert client.get("/static/none.css").json()["code"] == "not_found"
            assert reaped.wait(LIMIT_S)
        assert live.ended.wait(LIMIT_S)


def test_nothing_runs_on_after_its_end(tmp_path: Path) -> None:
    with open_context(Settings(data_dir=tmp_path, secret=SecretStr("s" * 40)), SystemClock()) as ctx:
        migrate.upgrade(ctx)
        app = create_app(ctx)

        async def live_once() -> set[str]:
            async with app.router.lifespan_context(app):
                during = {task.get_name() for task in asyncio.all_tasks()}
            after = {task.get_name() for task in asyncio.all_tasks()}
            assert "reaper" in during
            return after

        assert "reaper" not in asyncio.run(live_once())
        assert app.state.stopping.is_set()
