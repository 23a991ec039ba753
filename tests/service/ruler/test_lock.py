"""The lock notices every change of the ruler, and both ways out of it work."""

import shutil
from pathlib import Path

import pytest

from service.ruler import RULER_VERSION, lock


def test_the_lock_holds_for_the_sources_as_they_are() -> None:
    assert lock.problem(lock.ROOT) is None, lock.problem(lock.ROOT)
    assert lock.version(lock.ROOT) == RULER_VERSION


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for folder in lock.SOURCES:
        shutil.copytree(lock.ROOT / folder, tmp_path / folder)
    lock.decide(tmp_path, grow=False)
    return tmp_path


@pytest.mark.parametrize("source", ["service/ruler/metrics.py", "runners/load/wire.py"])
def test_a_change_needs_a_decision(tree: Path, source: str) -> None:
    assert lock.problem(tree) is None
    path = tree / source
    path.write_text(path.read_text() + "\n# changed\n")
    message = lock.problem(tree)
    assert message is not None
    assert "make ruler-keep" in message
    assert "make ruler-grow" in message
    assert lock.decide(tree, grow=False) == RULER_VERSION
    assert lock.problem(tree) is None


def test_a_new_source_needs_a_decision_and_growing_makes_a_new_version(tree: Path) -> None:
    (tree / "runners/load/extra.py").write_text("X = 1\n")
    assert lock.problem(tree) is not None
    assert lock.decide(tree, grow=True) == RULER_VERSION + 1
    assert lock.problem(tree) is None
    assert lock.version(tree) == RULER_VERSION + 1
