"""The command line in this process, and a runner by hand."""

import json
from typing import Any

import httpx
import pytest

from service.cli import run
from tests.service.api import things
from tests.service.api.attempts import AGENT, Attempt, bearing
from tests.service.live import Live

LIMIT_S = 60.0
SECRET = "s" * 40
CATALOG = f"""
[[builds]]
name = "v0.18.0"
version = "v0.18.0"
source = {{ kind = "simulated", profile = "v0.18.0", sha256 = "{"a" * 64}" }}
[[builds]]
name = "v0.19.1"
version = "v0.19.1"
source = {{ kind = "simulated", profile = "v0.19.1", sha256 = "{"b" * 64}" }}
[[recipes]]
name = "small"
build_kind = "simulated"
model = "any/model"
hardware = "simulated"
[[workloads]]
name = "tiny"
prefix_tokens = 64
suffix_tokens = 32
output_tokens = 4
concurrency = 2
requests = 2
warmup_requests = 2
"""


class Shell:
    """Runs commands in this process and keeps what they printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out = ""
        self.err = ""

    def __call__(self, *arguments: str, expect: int = 0) -> str:
        status = run(arguments)
        self.out, self.err = self._capsys.readouterr()
        assert status == expect, f"{arguments} left with {status}\n{self.out}\n{self.err}"
        return self.out

    def json(self, *arguments: str) -> Any:
        found = json.loads(self(*arguments, "--json"))
        assert self.err == ""
        return found


class Node:
    """A runner by hand."""

    def __init__(self, live: Live, shell: Shell) -> None:
        self.http = httpx.Client(base_url=live.url, trust_env=False, timeout=LIMIT_S)
        token = shell("runners", "enrolment-token").strip()
        enrolled = self.http.post(f"{AGENT}/enrol", json=things.ENROL, headers=bearing(token))
        self.headers = bearing(enrolled.json()["token"])
        self.leases = 0

    def lease(self) -> Attempt:
        self.leases += 1
        wanted = {"request_id": f"lrq_{self.leases:08}", "boot_id": things.BOOT, "slot": 0, "wait_s": 20}
        answer = self.http.post(f"{AGENT}/lease", json=wanted, headers=self.headers)
        assert answer.status_code == 200, answer.text
        return Attempt(self.http, answer.json())

    def measure(self, launches: int) -> None:
        """Measure so many launches: v0.19.1 takes 3 ms a token, everything else 2."""
        for _ in range(launches):
            attempt = self.lease()
            assert attempt.renew().is_success
            slow = attempt.lease["build"]["name"] == "v0.19.1"
            assert attempt.complete(3.0 if slow else 2.0).json()["accepted"] is True
