"""A runner's side of one attempt, by hand: every call with its own token, and a whole measured launch."""

import dataclasses
import hashlib
from typing import Any

import httpx

from service.contract.workloads import Workload
from service.ruler.rawlog import Phase, Role, encode
from tests.service.api.inprocess import InProcess
from tests.service.ruler import logs

AGENT = "/api/v1/agent"
Headers = dict[str, str]


def bearing(token: str) -> Headers:
    return {"Authorization": f"Bearer {token}"}


def failed(fence: int, message: str = "no such flag") -> dict[str, Any]:
    failure = {"failure_class": "spec_invalid", "step": "start", "message": message}
    return {"fence": fence, "body": {"outcome": "failed", "failure": failure}}


class Attempt:
    """The calls of one attempt with its own token."""

    def __init__(self, client: httpx.Client | InProcess, lease: dict[str, Any]) -> None:
        self.client = client
        self.lease = lease
        self.fence = lease["fence"]
        self.path = f"{AGENT}/attempts/{lease['attempt_id']}"
        self.headers = bearing(lease["token"])

    def renew(self, state: str = "preparing") -> Any:
        body = {"fence": self.fence, "state": state, "step": "prepare"}
        return self.client.request("POST", f"{self.path}/renew", json=body, headers=self.headers)

    def log(self, offset: int, data: bytes) -> Any:
        path = f"{self.path}/log?fence={self.fence}&offset={offset}"
        return self.client.request("PATCH", path, content=data, headers=self.headers)

    def artifact(self, name: str, data: bytes, sha256: str | None = None) -> Any:
        path = f"{self.path}/artifacts/{sha256 or sha(data)}?fence={self.fence}&name={name}"
        return self.client.request("PUT", path, content=data, headers=self.headers)

    def result(self, body: dict[str, Any]) -> Any:
        return self.client.request("PUT", f"{self.path}/result", json=body, headers=self.headers)

    def release(self, reason: str) -> Any:
        body = {"fence": self.fence, "reason": reason}
        return self.client.request("POST", f"{self.path}/release", json=body, headers=self.headers)

    def complete(self, step_ms: float = 2.0) -> Any:
        """Hand in a launch of three repetitions with so many milliseconds between tokens, uploads first."""
        files = launch_files(self.lease, step_ms)
        for name, data in files.items():
            assert self.artifact(name, data).status_code == 204
        return self.result(completed(self.lease, files))


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def launch_files(lease: dict[str, Any], step_ms: float) -> dict[str, bytes]:
    """The files of a launch: raw logs of warm-up and three repetitions, and the server's log."""
    workload = Workload.model_validate(lease["workload"])
    files = {"server.log": b"ready\n", "warm.rawlog": _raw(workload, 0, step_ms, lease["seed"])}
    return files | {f"rep-{n}.rawlog": _raw(workload, n, step_ms, lease["seed"]) for n in (1, 2, 3)}


def completed(lease: dict[str, Any], files: dict[str, bytes]) -> dict[str, Any]:
    """The result that goes with the files."""
    identity = {
        "version": "0.18.0",
        "served_model_name": f"nonce-{lease['attempt_id']}",
        "pid": 4711,
        "command": ["serve", "--port", "1"],
        "env": {},
        "server_log": sha(files["server.log"]),
    }
    launch = {
        "identity": identity,
        "prompts": "ab" * 32,
        "block_size": 16,
        "warm_log": sha(files["warm.rawlog"]),
        "repetitions": [{"number": n, "raw_log": sha(files[f"rep-{n}.rawlog"]), "counters": {}} for n in (1, 2, 3)],
        "steps": [{"name": "measure", "duration_s": 1.0}],
        "uptime_s": 9.0,
    }
    artifacts = [{"name": name, "sha256": sha(data), "size_bytes": len(data)} for name, data in files.items()]
    return {"fence": lease["fence"], "body": {"outcome": "completed", "launch": launch}, "artifacts": artifacts}


def _raw(workload: Workload, repetition: int, step_ms: float, seed: int) -> bytes:
    """Two requests at once; the seed moves the steps by a fraction of a percent, so that no two launches are equal."""
    step = step_ms * (1 + (seed % 97) / 97 / 200 + repetition / 5000)
    role = Role.MEASURED if repetition else Role.WARM
    requests = [
        logs.request(index, index, [10 + index + step * k for k in range(workload.output_tokens)], role=role)
        for index in range(2)
    ]
    phase = Phase.MEASURE if repetition else Phase.WARM
    made = logs.log(requests, workload, phase)
    return encode(dataclasses.replace(made, header=made.header.model_copy(update={"repetition": repetition})))
