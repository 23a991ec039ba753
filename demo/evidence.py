"""What a finding rests on: its launches in short, and the truth from the engines' own step logs."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from demo import rest
from demo.stack import DemoError

Launch = dict[str, Any]


def launches_of(client: httpx.Client, ids: Sequence[str]) -> list[Launch]:
    """Return launches by id, in that order."""
    return [rest.get(client, f"/launches/{one}") for one in ids]


def evidence(launches: Sequence[Launch]) -> dict[str, Any]:
    """Return the part of a finding that names its evidence: ids, processes, raw logs, and each launch in short."""
    return {
        "launch_ids": [launch["id"] for launch in launches],
        "pids": [launch["report"]["identity"]["pid"] for launch in launches],
        "raw_logs": [repetition["raw_log"] for launch in launches for repetition in launch["repetitions"]],
        "launches": [_short(launch) for launch in launches],
    }


def seconds_between(began: str, ended: str) -> float:
    """Return the seconds between two of the controller's times."""
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()


def truth(client: httpx.Client, base: Sequence[Launch], head: Sequence[Launch]) -> dict[str, Any]:
    """Return the true ratio of head over base, computed from the step logs that the engines of these launches wrote.

    Empty where a launch is of a real build: only simulated engines know the truth. Raises DemoError.
    """
    if not base or not head or any(one["build"]["source"]["kind"] != "simulated" for one in [*base, *head]):
        return {}
    with tempfile.TemporaryDirectory() as folder:
        arguments: list[str] = []
        for side, ours in (("base", base), ("head", head)):
            arguments += [f"--{side}", *(_step_log(client, launch, Path(folder)) for launch in ours)]
        done = subprocess.run(
            [sys.executable, "-m", "images.simulated", "truth", *arguments], capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise DemoError(f"The truth could not be read from the step logs:\n{done.stderr}")
    ratios = json.loads(done.stdout)
    return {"truth": ratios["tpot_free"], "truths": ratios}


def held(finding: dict[str, Any]) -> str:
    """Return the line that says whether the interval holds the truth; empty where there is no truth to hold."""
    if "truth" not in finding or finding["interval"] is None:
        return ""
    low, high = finding["interval"]
    where = "inside" if low <= finding["truth"] <= high else "outside (a 95 % interval misses 1 time in 20)"
    return f"The engines' own step logs say {finding['truth']:.4f}: {where} the interval."


def _short(launch: Launch) -> dict[str, Any]:
    identity = launch["report"]["identity"]
    return {
        "id": launch["id"],
        "build": launch["build"]["name"],
        "kind": launch["build"]["source"]["kind"],
        "validity": launch["validity"],
        "pid": identity["pid"],
        "version": identity["version"],
        "server_log": identity["server_log"],
    }


def _step_log(client: httpx.Client, launch: Launch, folder: Path) -> str:
    path = folder / f"{launch['id']}.steps"
    path.write_bytes(rest.download(client, f"/launches/{launch['id']}/artifacts/steps.log"))
    return str(path)
