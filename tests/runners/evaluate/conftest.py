"""Engines that answer, and the Python that has lm-eval."""

import os
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.images.simulated.engine_process import FAST, EngineProcess

BUNDLED = Path(__file__).parents[3] / "images" / "gsm8k"
StartEngine = Callable[..., EngineProcess]


def missing(reason: str) -> None:
    """Skip the test; in CI nothing may be missing."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"in CI nothing is left out, but {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def lm_eval_python() -> Path:
    """The tests' own Python, or another one that is named."""
    if find_spec("lm_eval") is None:
        named = os.environ.get("BACKSLIDE_RUNNER_LM_EVAL_PYTHON")
        if named is None:
            missing("lm-eval is not installed (requirements/eval.txt)")
        return Path(named or sys.executable)
    return Path(sys.executable)


@pytest.fixture
def start_engine(tmp_path: Path) -> Iterator[StartEngine]:
    """Starts engines with a quick profile plus some TOML, which answer the questions of a file."""
    started: list[EngineProcess] = []

    def start(questions: Path = BUNDLED / "questions.jsonl", extra: str = "") -> EngineProcess:
        profile = tmp_path / f"profile-{len(started)}.toml"
        profile.write_text(FAST + extra)
        log = tmp_path / f"steps-{len(started)}.log"
        arguments = ["--gsm8k", str(questions), "--step-log", str(log), "--time-compression", "4"]
        started.append(EngineProcess(profile, *arguments))
        return started[-1]

    yield start
    for engine in started:
        engine.stop()
