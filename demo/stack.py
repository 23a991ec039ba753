"""A controller and a runner as child processes of the demo, in a directory of their own; they end with it."""

import contextlib
import ctypes
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

PR_SET_PDEATHSIG = 1
START_LIMIT_S = 60
RESTARTS = 5
STOP_CONTROLLER = ((signal.SIGTERM, 30.0), (signal.SIGKILL, 10.0))
STOP_RUNNER = ((signal.SIGTERM, 0.5), (signal.SIGTERM, 90.0), (signal.SIGKILL, 10.0))
"""A runner finishes its launch on the first SIGTERM and gives it back on the second."""


class DemoError(Exception):
    """The demo can't go on; the message says why and what to do."""


@dataclass(frozen=True)
class Layout:
    """Where the demo keeps what. ``--resume`` needs all of it."""

    root: Path
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def runner_state(self) -> Path:
        return self.root / "runner"

    @property
    def state(self) -> Path:
        return self.root / "state.json"

    @property
    def finding(self) -> Path:
        return self.root / "finding.json"

    @property
    def report(self) -> Path:
        return self.root / "report.md"


@dataclass
class Child:
    """One supervised process: started again when it dies without being asked to, a bounded number of times."""

    name: str
    command: list[str]
    env: Mapping[str, str]
    log: Path
    stops: tuple[tuple[signal.Signals, float], ...]
    process: subprocess.Popen[bytes] | None = None
    restarts: int = 0

    begins_at: int = 0
    """Where in the log this life of the process begins."""

    def start(self) -> None:
        self.begins_at = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                env=dict(self.env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is the demo's to handle: it ends its children in order
                preexec_fn=_end_with_parent,
            )

    def check(self) -> None:
        """Start it again if it died. Raises DemoError after too many deaths."""
        if self.process is None or self.process.poll() is None:
            return
        self.restarts += 1
        if self.restarts > RESTARTS:
            raise DemoError(f"The {self.name} died {self.restarts} times; its log ends:\n{self.tail()}")
        print(f"The {self.name} died (exit {self.process.returncode}); starting it again.", flush=True)
        self.start()

    def stop(self) -> None:
        """End it by its own sequence of signals, SIGKILL at last."""
        if self.process is None:
            return
        for number, wait_s in self.stops:
            if self.process.poll() is None:
                self.process.send_signal(number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(wait_s)
        self.process = None

    def says(self, words: str) -> bool:
        """Whether this life of the process has written these words to its log."""
        with self.log.open("rb") as log:
            log.seek(self.begins_at)
            return words.encode() in log.read()

    def tail(self, lines: int = 15) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])


def _end_with_parent() -> None:
    """Let the kernel send SIGTERM to the child when the demo dies, however it dies."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@dataclass
class Stack:
    """The controller, one runner, and a client's token."""

    layout: Layout
    runner_env: Mapping[str, str]
    slots: int
    children: list[Child] = field(default_factory=list)
    token: str = ""

    def __enter__(self) -> "Stack":
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # an impatient Ctrl-C must not leave half of them running
        for child in reversed(self.children):  # the runner first: it gives its work back to the controller
            child.stop()

    def start(self) -> None:
        """Start the controller, then the runner; enrol it and make a token on the first start."""
        saved = self._saved()
        controller = self._child(
            "controller", ["service.cli", "serve"], self._controller_env(saved["secret"]), STOP_CONTROLLER
        )
        self._await_controller(controller)
        if "token" not in saved:
            saved["token"] = self._command(["token", "create", "--name", "demo", "--role", "admin", "--json"], saved)
            self._save(saved)
        self.token = saved["token"]
        if not saved.get("enrolled"):
            self._enrol()
            self._save({**saved, "enrolled": True})
        self._child("runner", ["runners.cli", "run"], self._runner_env(), STOP_RUNNER)

    def remember(self, **values: Any) -> None:
        """Keep values for ``--resume``."""
        self._save({**self._saved(), **values})

    def recall(self, name: str) -> Any:
        """Return a value that an earlier run kept, or None."""
        return self._saved().get(name)

    def client(self) -> httpx.Client:
        """A REST client with the demo's token, as anybody would make one."""
        return httpx.Client(
            base_url=f"{self.layout.url}/api/v1",
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=30,
            trust_env=False,
        )

    def client_env(self) -> dict[str, str]:
        """Environment for ``backslide`` as a client."""
        return {**os.environ, "BACKSLIDE_URL": self.layout.url, "BACKSLIDE_TOKEN": self.token}

    def watch(self, command: list[str]) -> int:
        """Run a ``backslide`` client command to its end, keeping controller and runner alive meanwhile."""
        # In a session of its own: at Ctrl-C the demo ends it, and it has nothing to say about that.
        with subprocess.Popen(
            [sys.executable, "-m", "service.cli", *command],
            env=self.client_env(),
            start_new_session=True,
            preexec_fn=_end_with_parent,
        ) as process:
            try:
                while True:
                    try:
                        return process.wait(0.5)
                    except subprocess.TimeoutExpired:
                        self.check()
            except BaseException:
                process.kill()
                raise

    def check(self) -> None:
        """Start again what died."""
        for child in self.children:
            child.check()

    def _child(
        self, name: str, module: list[str], env: Mapping[str, str], stops: tuple[tuple[signal.Signals, float], ...]
    ) -> Child:
        child = Child(name, [sys.executable, "-m", *module], env, self.layout.root / f"{name}.log", stops)
        self.children.append(child)
        child.start()
        return child

    def _controller_env(self, secret: str) -> dict[str, str]:
        return {
            **os.environ,
            "BACKSLIDE_DATA_DIR": str(self.layout.data),
            "BACKSLIDE_SECRET": secret,
            "BACKSLIDE_PORT": str(self.layout.port),
            "BACKSLIDE_LEASE_TTL_S": "30",
            "BACKSLIDE_HEARTBEAT_S": "5",
            "BACKSLIDE_REAP_EVERY_S": "1",
        }

    def _runner_env(self) -> dict[str, str]:
        return {**os.environ, **self.runner_env, "BACKSLIDE_RUNNER_STATE_DIR": str(self.layout.runner_state)}

    def _command(self, arguments: list[str], saved: dict[str, Any]) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "service.cli", *arguments],
            env=self._controller_env(saved["secret"]),
            capture_output=True,
            text=True,
            timeout=START_LIMIT_S,
            check=False,
        )
        if done.returncode:
            raise DemoError(f"'backslide {' '.join(arguments)}' failed:\n{done.stderr}")
        token: str = json.loads(done.stdout)["token"]
        return token

    def _await_controller(self, controller: Child) -> None:
        end = time.monotonic() + START_LIMIT_S
        while time.monotonic() < end:
            assert controller.process is not None
            if controller.process.poll() is not None:
                raise DemoError(f"The controller did not start:\n{controller.tail()}")
            if controller.says(f"is ready at {self.layout.url}"):  # its own word: another one may have the port
                return
            time.sleep(0.1)
        raise DemoError(f"The controller did not answer within {START_LIMIT_S} s:\n{controller.tail()}")

    def _enrol(self) -> None:
        with self.client() as client:
            answer = client.post("/runners/enrolment-tokens", json={})
            answer.raise_for_status()
        done = subprocess.run(
            [
                *(sys.executable, "-m", "runners.cli", "enrol", "--controller", self.layout.url),
                *("--token", answer.json()["token"], "--name", "demo", "--slots", str(self.slots)),
            ],
            env=self._runner_env(),
            capture_output=True,
            text=True,
            timeout=START_LIMIT_S,
            check=False,
        )
        if done.returncode:
            raise DemoError(f"The runner could not enrol:\n{done.stdout}{done.stderr}")

    def _saved(self) -> dict[str, Any]:
        if self.layout.state.exists():
            saved: dict[str, Any] = json.loads(self.layout.state.read_text())
            return saved
        fresh = {"secret": secrets.token_urlsafe(32)}
        self._save(fresh)
        return fresh

    def _save(self, values: Mapping[str, Any]) -> None:
        temporary = self.layout.state.with_suffix(".part")
        temporary.touch(mode=0o600)
        temporary.write_text(json.dumps(values))
        temporary.replace(self.layout.state)
