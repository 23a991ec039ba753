"""``python -m runners.cli run`` as a child process of a test, and what can be seen of it from outside."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from runners.identity import RunnerIdentity, save_identity
from runners.settings import RunnerSettings
from service.contract import ids
from service.contract.builds import BuildKind
from tests.runners.fake_controller import LIMIT_S, FakeController

ROOT = Path(__file__).resolve().parents[2]


def environment(settings: RunnerSettings) -> dict[str, str]:
    """The settings as variables."""
    names = ("state_dir", "cache_dir", "profiles_dir", "keep_free_bytes", "lease_wait_s", "stall_s", "retry_cap_s")
    variables = {f"BACKSLIDE_RUNNER_{name.upper()}": str(getattr(settings, name)) for name in names}
    return {**os.environ, **variables, "PYTHONPATH": str(ROOT)}


class RunnerProcess:
    """One state directory, one life after another."""

    def __init__(self, settings: RunnerSettings, controller: FakeController, folder: Path, slots: int = 1) -> None:
        self.settings = settings
        self.output = folder / "runner.log"
        self._processes: list[subprocess.Popen[bytes]] = []
        self.runner_id = ids.new_id("run")  # another one every time: sweeps go by it
        settings.state_dir.mkdir(parents=True)
        self.enrol(controller, slots)

    def enrol(self, controller: FakeController, slots: int) -> None:
        identity = RunnerIdentity(
            runner_id=self.runner_id,
            token="bkr_test",
            controller=controller.url,
            name="test",
            slots=slots,
            hardware=["simulated"],
            build_kinds=[BuildKind.SIMULATED],
        )
        save_identity(self.settings.state_dir, identity)

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        return self._processes[-1]

    def start(self) -> None:
        with self.output.open("ab") as output:
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "runners.cli", "run"],
                    env=environment(self.settings),
                    cwd=self.settings.state_dir,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # its group is what a terminal's Ctrl-C would reach
                )
            )

    def run_once(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """``run`` with arguments, for one that is refused."""
        command = [sys.executable, "-m", "runners.cli", "run", *words]
        folder = self.settings.state_dir
        environ = environment(self.settings)
        return subprocess.run(
            command, env=environ, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )

    def press_ctrl_c(self) -> None:
        """Send SIGINT as a terminal does: to the runner and to whatever it started in its own process group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        return self.process.wait(LIMIT_S)

    def kill(self) -> None:
        self.process.kill()
        self.wait()

    def end(self) -> None:
        """End whatever is left of the test, by its own ids."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait(LIMIT_S)
        for left in self.servers():
            left.kill()

    def servers(self) -> list[psutil.Process]:
        """Every process that names this test's state directory in its command line or its environment."""
        found = []
        for process in psutil.process_iter():
            try:
                text = " ".join(process.cmdline()) + " ".join(process.environ().values())
            except psutil.Error:
                continue
            mine = str(self.settings.state_dir) in text and process.pid not in (os.getpid(), self.process.pid)
            if mine and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        return found

    def until(self, happens: Callable[[], bool], what: str) -> None:
        """Wait for something on the disk or in the runner's output while the runner lives; bounded."""
        pause, end_s = threading.Event(), time.monotonic() + LIMIT_S
        while not happens():
            assert self.process.poll() is None, f"the runner ended: {self.text()}"
            assert time.monotonic() < end_s, f"waited {LIMIT_S} s for {what}: {self.text()}"
            pause.wait(0.05)

    def text(self) -> str:
        return self.output.read_text(errors="replace")
