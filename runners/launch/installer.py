"""The programs that make an environment: venv, pip, a probe; each with a time limit, progress, and a way to stop it."""

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from runners.launch.wheel_sets import WheelSetError, invalid
from service.contract.clock import Clock
from service.contract.failures import FailureClass

TICK_S = 0.2
LINGER_S = 10.0
LINE_CHARACTERS = 300
TAIL_LINES = 12
PROGRESS_EVERY = 10


class InstallStopped(Exception):
    """The installation was stopped from outside, and has been undone."""


@dataclass
class Installer:
    """Runs the steps of one installation. ``held_open`` are file descriptors that its programs inherit."""

    name: str
    clock: Clock
    on_progress: Callable[[str], None]
    stop: threading.Event
    held_open: tuple[int, ...] = ()

    def wait_until(self, happens: Callable[[], bool], limit_s: float, waits_for: str, too_late: str) -> None:
        """Return as soon as ``happens()`` is true; raise timeout_step after ``limit_s``, or InstallStopped."""
        deadline_s = self.clock.monotonic_s() + limit_s
        told = False
        while not happens():
            if not told:
                self.on_progress(f"{self.name}: waiting for {waits_for}")
                told = True
            if self.clock.monotonic_s() >= deadline_s:
                raise WheelSetError(FailureClass.TIMEOUT_STEP, f"{self.name}: {too_late} after {limit_s:.0f} s")
            if self.stop.wait(TICK_S):
                raise InstallStopped(f"{self.name}: stopped while waiting for {waits_for}")

    def make_venv(self, base: str, root: Path, limit_s: float) -> None:
        """Make an environment with pip. Raises spec_invalid when this Python can't."""
        self.on_progress(f"{self.name}: making an environment in {root}")
        status, tail = self._run([base, "-I", "-m", "venv", str(root)], limit_s, "making the environment")
        if status != 0:
            if "ensurepip" in tail:
                raise invalid(f"{self.name}: this Python can't make environments: apt-get install python3-venv\n{tail}")
            raise _failed(f"{self.name}: python -m venv ended with {status}", tail, FailureClass.INTERNAL)

    def pip_install(self, root: Path, requirements: Path, packages: int, limit_s: float) -> None:
        """Install the requirement file, hashes required, wheels only. Raises spec_invalid, image_pull or disk_full."""
        scratch = root / "tmp"
        scratch.mkdir()
        command = [str(root / "bin" / "python"), "-I", "-m", "pip", "install", "--no-input", "--no-cache-dir"]
        command += ["--progress-bar", "off", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
        command += ["--require-hashes", "-r", str(requirements)]
        collected = 0

        def tell(line: str) -> None:
            nonlocal collected
            # A wheel that lies on this machine's disk is processed, not collected.
            if line.startswith(("Collecting ", "Processing ")):
                collected += 1
                if collected == 1 or collected % PROGRESS_EVERY == 0 or collected == packages:
                    package = line.split()[1].rpartition("/")[2]
                    self.on_progress(f"{self.name}: fetching package {collected} of {packages}: {package}")
            elif line.startswith("Installing collected packages"):
                self.on_progress(f"{self.name}: installing {packages} packages")

        # pip keeps every wheel in its temporary folder until the end, and /tmp may be small: use the disk that was
        # checked.
        status, tail = self._run(command, limit_s, "pip install", {"TMPDIR": str(scratch)}, tell)
        if status != 0:
            raise _pip_failed(self.name, status, tail)
        scratch.rmdir()

    def probe(self, root: Path, program: str, env: Mapping[str, str], limit_s: float) -> list[str]:
        """Run a program with the environment's own Python; return the JSON list that its last line is."""
        self.on_progress(f"{self.name}: importing vllm")
        command = [str(root / "bin" / "python"), "-I", "-c", program]
        status, tail = self._run(command, limit_s, "importing vllm", env)
        if "cannot be preloaded" in tail:
            raise invalid(f"{self.name}: a library could not be preloaded\n{tail}")
        try:
            answers = json.loads(tail.splitlines()[-1]) if status == 0 else None
        except (ValueError, IndexError):
            answers = None
        if not isinstance(answers, list):
            raise _failed(f"{self.name}: vllm can't be imported", tail, FailureClass.SPEC_INVALID)
        return [str(answer) for answer in answers]

    def _run(
        self,
        command: list[str],
        limit_s: float,
        what: str,
        env: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> tuple[int, str]:
        """Run a program; return its exit status and the last lines that it printed. Its whole process group ends with
        it.
        """
        deadline_s = self.clock.monotonic_s() + limit_s
        process = subprocess.Popen(
            command,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=self.held_open,
        )
        tail: list[str] = []
        try:
            for line in self._lines(process, deadline_s, f"{what} took more than {limit_s:.0f} s"):
                tail = [*tail[-TAIL_LINES + 1 :], line]
                if on_line is not None:
                    on_line(line)
            return _wait(process), "\n".join(tail)
        finally:
            _end_group(process)

    def _lines(self, process: "subprocess.Popen[bytes]", deadline_s: float, too_late: str) -> Iterator[str]:
        """Yield the program's lines until it closes its output; look at the clock and at ``stop`` in between."""
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        assert process.stdout is not None
        reader = threading.Thread(target=_read_lines, args=(process.stdout, lines), daemon=True)
        reader.start()
        while True:
            try:
                line = lines.get(timeout=TICK_S)
            except queue.Empty:
                pass
            else:
                if line is None:
                    return
                yield line
            if self.stop.is_set():
                raise InstallStopped(f"{self.name}: stopped")
            if self.clock.monotonic_s() >= deadline_s:
                raise WheelSetError(FailureClass.TIMEOUT_STEP, f"{self.name}: {too_late}")


def _read_lines(stream: IO[bytes], lines: "queue.SimpleQueue[str | None]") -> None:
    """Put each line, and None at the end. Ends when the last process that holds the pipe is gone."""
    for line in stream:
        lines.put(line.decode("utf-8", errors="replace").strip()[:LINE_CHARACTERS])
    stream.close()
    lines.put(None)


def _wait(process: "subprocess.Popen[bytes]") -> int:
    """Return the exit status of a program that has closed its output; one that lingers is ended."""
    try:
        return process.wait(timeout=LINGER_S)
    except subprocess.TimeoutExpired:
        _end_group(process)
        return process.wait()


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    """End the program's process group. The program is not reaped before, so its number can't have been given away."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _failed(message: str, tail: str, failure_class: FailureClass) -> WheelSetError:
    return WheelSetError(failure_class, f"{message}; its last lines:\n{tail}")


def _pip_failed(name: str, status: int, tail: str) -> WheelSetError:
    """Return the error for what pip printed last."""
    if re.search(r"DO NOT MATCH THE HASHES|Hashes are required|--require-hashes mode", tail):
        return _failed(
            f"{name}: a package is not the one that the set pins by its hash", tail, FailureClass.SPEC_INVALID
        )
    if re.search(r"No space left on device|Errno 28|Disk quota exceeded", tail):
        return _failed(f"{name}: the disk is full", tail, FailureClass.DISK_FULL)
    return _failed(
        f"{name}: pip could not fetch or install the set (exit status {status})", tail, FailureClass.IMAGE_PULL
    )
