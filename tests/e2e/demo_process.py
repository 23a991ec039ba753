"""The demo as a child process, in a directory and on a port of its own."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 420.0


@dataclass
class Demo:
    """One run after another of ``python -m demo`` in one directory."""

    folder: Path
    port: int
    runs: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/api/v1"

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "demo", "--dir", str(self.folder), "--port", str(self.port), *arguments]
        with (self.folder.parent / "demo.out").open("ab") as out:
            process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        self.runs.append(process)
        return process

    def finish(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        """Wait for a run's end and return its finding."""
        assert process.wait(LIMIT_S) == 0, self.output()
        finding: dict[str, Any] = json.loads((self.folder / "finding.json").read_text())
        return finding

    def output(self) -> str:
        text = [(self.folder.parent / "demo.out").read_text(errors="replace")[-6000:]]
        text += [f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in self.folder.glob("*.log")]
        return "\n".join(text)

    def get(self, path: str) -> Any:
        """The JSON of a GET; an empty object while there is no answer."""
        try:
            answer = httpx.get(f"{self.url}{path}", timeout=10, trust_env=False)
        except httpx.HTTPError:
            return {}
        return answer.json() if answer.is_success else {}

    def post(self, path: str, body: Any = None) -> dict[str, Any]:
        """POST with the demo's own token."""
        token = json.loads((self.folder / "state.json").read_text())["token"]
        headers = {"Authorization": f"Bearer {token}"}
        answer = httpx.post(f"{self.url}{path}", json=body or {}, headers=headers, timeout=30, trust_env=False)
        assert answer.is_success, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def bisect(self, bisect_id: str | None = None) -> dict[str, Any]:
        """A bisect, the newest if none is named; an empty object while there is no answer."""
        if bisect_id is None:
            listed = self.get("/bisects")
            bisect_id = listed[0]["id"] if listed else None
        found: dict[str, Any] = self.get(f"/bisects/{bisect_id}") if bisect_id else {}
        return found if found else {"state": None, "jobs": []}

    def launches(self, bisect_id: str | None = None) -> dict[str, str]:
        """The launches that a bisect has, by job."""
        return {job["id"]: job["launch_id"] for job in self.bisect(bisect_id)["jobs"] if job["launch_id"]}

    def slots(self) -> list[str]:
        """The states of every slot."""
        return [slot["state"] for runner in self.get("/runners") or [] for slot in runner["slots"]]

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Poll a condition of the outside world, bounded."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            if condition():
                return
            if self.runs[-1].poll() is not None:
                pytest.fail(f"the demo ended while waiting for {what}:\n{self.output()}")
            time.sleep(0.1)
        pytest.fail(f"waited {LIMIT_S} s for {what}:\n{self.output()}")

    def processes(self) -> list[psutil.Process]:
        """Everything that names this demo's directory in its command line or environment."""
        found = []
        for process in psutil.process_iter():
            try:
                text = " ".join(process.cmdline()) + " ".join(process.environ().values())
                if str(self.folder) in text and process.pid != os.getpid():
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def kill(self, pattern: str) -> None:
        """kill -9 the one process of this demo whose command line matches."""
        matching = [p for p in self.processes() if re.search(pattern, " ".join(p.cmdline()))]
        assert len(matching) == 1, [p.cmdline() for p in matching]
        matching[0].kill()
