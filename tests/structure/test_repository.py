"""The walls of the house that no linter knows."""

import re
import subprocess
from pathlib import Path

import pytest

from service.domain import diagrams, metrics_page

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("service", "runners", "images", "migrations", "demo", "tests", "benchmarks")
MODULES = [path for top in SOURCES for path in sorted((ROOT / top).rglob("*.py"))]


def _tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    return [ROOT / name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


def test_no_module_has_more_than_400_lines() -> None:
    assert len(MODULES) > 50
    long = {str(path.relative_to(ROOT)): n for path in MODULES if (n := len(path.read_text().splitlines())) > 400}
    assert long == {}


def test_no_module_has_a_name_that_says_nothing() -> None:
    empty = {"utils.py", "helpers.py", "common.py", "misc.py", "manager.py"}
    assert [path for path in MODULES if path.name in empty] == []


def test_only_the_store_speaks_sql() -> None:
    speaks = re.compile(r"^\s*(?:from|import) (?:sqlalchemy|sqlmodel|psycopg|sqlite3)\b", re.MULTILINE)
    outside = [
        str(path.relative_to(ROOT))
        for path in MODULES
        if path.relative_to(ROOT).parts[0] in ("service", "runners", "images", "demo")
        and path.relative_to(ROOT).parts[:2] != ("service", "store")
        and speaks.search(path.read_text())
    ]
    assert outside == []


def test_no_lock_file_records_download_addresses() -> None:
    names = {path.name for path in _tracked()}
    assert not names & {"uv.lock", "poetry.lock", "package-lock.json"}


@pytest.mark.parametrize("name", ["base", "dev", "eval", "build"])
def test_every_requirement_is_pinned_and_hashed(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    pins = re.findall(r"^[a-z0-9][^\s=]*==\S+", text, re.MULTILINE)
    assert len(pins) >= 2
    assert len(re.findall(r"^[a-z0-9].*\\\n    --hash=sha256:", text, re.MULTILINE)) == len(pins)
    assert "://" not in text


def test_the_state_diagrams_are_drawn_from_the_tables() -> None:
    assert (ROOT / "docs" / "states.md").read_text() == diagrams.render(), "run `make docs`"


def test_the_metrics_page_is_written_from_the_rulers_tables() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text() == metrics_page.render(), "run `make docs`"
