"""The built wheel, installed into an empty environment and run from another directory, has everything."""

import os
import re
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 240


def _run(command: list[str], cwd: Path, **env: str) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={"PATH": os.environ["PATH"], "HOME": str(cwd), **_pip(), **env},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _pip() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "HTTP", "http"))}


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    _run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)], folder)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "env", with_pip=True)
    binaries = folder / "env" / "bin"
    pip = [str(binaries / "python"), "-m", "pip", "install", "-qq"]
    _run([*pip, "--require-hashes", "-r", str(ROOT / "requirements" / "base.txt")], folder)
    _run([*pip, "--no-deps", "--no-index", str(wheel)], folder)
    return binaries


@pytest.fixture
def address(binaries: Path, tmp_path: Path) -> Iterator[str]:
    process = subprocess.Popen(
        [str(binaries / "backslide"), "serve", "--port", "0"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "BACKSLIDE_SECRET": "a" * 40},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        seen = []
        for line in process.stdout:
            seen.append(line)
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                yield found.group()
                break
        else:
            pytest.fail("the controller ended before it said its address:\n" + "".join(seen))
    finally:
        process.terminate()
        process.communicate(timeout=30)
    assert process.returncode == 0


def test_an_installed_wheel_serves_migrates_and_shows_the_page(address: str, binaries: Path, tmp_path: Path) -> None:
    with httpx.Client(base_url=address, trust_env=False) as client:
        assert client.get("/api/v1/health").status_code == 200
        page = client.get("/")
        assert page.status_code == 200
        assert "<html" in page.text
        for found in re.findall(r'href="(/static/[^"]+)"', page.text):
            assert client.get(found).status_code == 200
        assert client.get("/launches.json").status_code == 200
    assert (tmp_path / "backslide-data" / "backslide.sqlite").exists()


def test_an_installed_wheel_has_the_catalog_the_models_and_the_engine(binaries: Path, tmp_path: Path) -> None:
    listed = _run(
        [
            str(binaries / "python"),
            "-c",
            "from images.catalog import builds; print(len(builds.simulated()), len(builds.wheels()))",
        ],
        tmp_path,
    )
    assert listed.split() == ["12", "2"]
    assert "--profile-file" in _run([str(binaries / "python"), "-m", "images.simulated", "serve", "--help"], tmp_path)


def test_the_runner_loads_neither_the_web_framework_nor_the_database(binaries: Path, tmp_path: Path) -> None:
    script = "import sys, runners.cli; print([m for m in ('fastapi', 'sqlalchemy', 'sqlmodel') if m in sys.modules])"
    assert _run([str(binaries / "python"), "-c", script], tmp_path).strip() == "[]"
