"""Fixtures of the end-to-end tests."""

import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.demo_process import Demo


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    demo = Demo(tmp_path / "demo", port)
    yield demo
    for process in demo.runs:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                process.kill()
    left = demo.processes()
    for process_left in left:
        process_left.kill()
    assert left == []
