"""Fixtures of the launcher's tests."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.runners.launch.wheel_bench import Sets, SilentServer


@pytest.fixture
def sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sets:
    monkeypatch.setenv("PIP_RETRIES", "0")
    return Sets(tmp_path)


@pytest.fixture
def silent() -> Iterator[Callable[[Callable[[], None]], SilentServer]]:
    servers: list[SilentServer] = []

    def start(on_connect: Callable[[], None]) -> SilentServer:
        servers.append(SilentServer(on_connect))
        return servers[-1]

    yield start
    for server in servers:
        server.close()
