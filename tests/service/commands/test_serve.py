"""``backslide serve``: how it starts, what it refuses, how it ends."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from service.actions.context import Context
from service.commands import local
from tests.service.commands.shell import LIMIT_S, SECRET, Shell


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_migrates_says_its_address_and_leaves_with_0(tmp_path: Path, number: signal.Signals) -> None:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("BACKSLIDE_")}
    variables |= {"BACKSLIDE_DATA_DIR": str(tmp_path / "data"), "BACKSLIDE_SECRET": SECRET}
    command = [sys.executable, "-m", "service.cli", "serve", "--port", "0"]
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+", ready)
            assert found, ready
            assert httpx.get(f"{found.group()}/api/v1/health", trust_env=False).json()["status"] == "ok"
        finally:
            process.send_signal(number)
            _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, err


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings for a controller that was never started."""
    monkeypatch.setenv("BACKSLIDE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("BACKSLIDE_SECRET", SECRET)
    return tmp_path / "data"


def test_serve_names_a_port_in_use_and_what_to_do(fresh: Path, shell: Shell) -> None:
    with local.bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        shell("serve", "--port", str(port), expect=2)
    assert f"Port {port} on 127.0.0.1 is in use" in shell.err
    assert "--port" in shell.err
    assert not (fresh / "backslide.sqlite").exists()


def test_serve_refuses_the_default_secret_outside_demo_mode(
    fresh: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BACKSLIDE_SECRET")
    shell("serve", "--port", "0", expect=2)
    assert "BACKSLIDE_SECRET is not set" in shell.err


def test_serve_names_a_setting_that_makes_no_sense(fresh: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSLIDE_LEASE_TTL_S", "soon")
    shell("serve", "--port", "0", expect=2)
    assert "BACKSLIDE_LEASE_TTL_S" in shell.err
    assert "'soon'" in shell.err


@pytest.mark.parametrize("options", [(), ("--no-migrate",)])
def test_serve_leaves_the_database_of_a_newer_version_alone(
    fresh: Path, ctx: Context, shell: Shell, options: tuple[str, ...]
) -> None:
    with ctx.store.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999_from_the_future'")
    shell("serve", "--port", "0", *options, expect=2)
    assert "9999_from_the_future" in shell.err


def test_serve_refuses_an_old_schema_when_told_not_to_migrate(fresh: Path, shell: Shell) -> None:
    shell("serve", "--port", "0", "--no-migrate", expect=2)
    assert "backslide migrate" in shell.err
    shell("token", "list", expect=2)
    assert "backslide migrate" in shell.err
    assert "up to date" in shell("migrate")
    assert "There is no token" in shell("token", "list")


def test_serve_names_a_data_directory_that_cannot_be_used(
    fresh: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh.write_text("a file")
    shell("serve", "--port", "0", expect=2)
    assert "BACKSLIDE_DATA_DIR" in shell.err


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://nobody@127.0.0.1:1/x", "can't be reached"),
        ("mysql://x/y", "sqlite:///FILE or postgresql://USER@HOST/NAME"),
        ("nonsense", "no database URL"),
    ],
)
def test_serve_says_in_a_line_why_a_database_cannot_be_used(
    fresh: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch, url: str, said: str
) -> None:
    monkeypatch.setenv("BACKSLIDE_SECRET", SECRET)
    monkeypatch.setenv("BACKSLIDE_DATABASE_URL", url)
    shell("serve", "--port", "0", expect=1 if "reached" in said else 2)
    assert said in shell.err
    assert "Traceback" not in shell.err
