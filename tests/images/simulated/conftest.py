"""Engines for the tests here: each is ended with its test, whatever happens."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.images.simulated.engine_process import FAST, EngineProcess


class Engines:
    """Starts engines and remembers them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.started: list[EngineProcess] = []

    def start(self, *arguments: str, profile: Path | None = None, extra: str = "", **options: bool) -> EngineProcess:
        """An engine with a catalog profile, or with the fast one plus some TOML."""
        if profile is None:
            profile = self._directory / f"profile-{len(self.started)}.toml"
            profile.write_text(FAST + extra)
        environment = {"VLLM_SERVER_DEV_MODE": "1"} if options.get("developer") else {"VLLM_SERVER_DEV_MODE": "0"}
        engine = EngineProcess(profile, *arguments, environment=environment, ready=options.get("ready", True))
        self.started.append(engine)
        return engine


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[Engines]:
    """Starts engines, and ends those that the test left running."""
    group = Engines(tmp_path)
    yield group
    for engine in group.started:
        if engine.process.poll() is None:
            engine.process.kill()
        if engine.process.stdout is not None and not engine.process.stdout.closed:
            engine.process.communicate()
