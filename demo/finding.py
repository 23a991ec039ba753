"""``finding.json``: what the demo found, in the form in which a program reads it."""

import json
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from demo.stack import DemoError

ASKED = ("kind", "metric", "recipe", "workload", "hardware", "blocks", "seed")


def collect(client: httpx.Client, request_id: str, metric: str) -> dict[str, Any]:
    """Return the finding of a finished comparison request, read back over REST."""
    request = _get(client, f"/requests/{request_id}")
    comparison = _get(client, f"/requests/{request_id}/comparison?metric={metric}")
    launches = [
        _get(client, f"/launches/{job['launch_id']}") for job in request["jobs"] if job["launch_id"] is not None
    ]
    row = comparison["rows"][0]
    return {
        "asked": {
            **{name: request[name] for name in ASKED},
            "base": request["base"]["name"],
            "head": request["head"]["name"],
        },
        "verdict": comparison["verdict"],
        "sentence": comparison["sentence"],
        "metric": comparison["metric"],
        "last_good": comparison["base"]["name"] if comparison["verdict"] == "worse" else None,
        "first_bad": comparison["head"]["name"] if comparison["verdict"] == "worse" else None,
        "ratio": row["ratio"],
        "interval": None if row["low"] is None else [row["low"], row["high"]],
        "request_id": request_id,
        "seconds": (_time(request["ended_at"]) - _time(request["created_at"])).total_seconds(),
        "launch_ids": [launch["id"] for launch in launches],
        "pids": [launch["report"]["identity"]["pid"] for launch in launches],
        "raw_logs": [repetition["raw_log"] for launch in launches for repetition in launch["repetitions"]],
        "launches": [_launch(launch) for launch in launches],
        **_truth(client, launches, comparison),
    }


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _get(client: httpx.Client, path: str) -> dict[str, Any]:
    answer = client.get(path)
    if answer.is_error:
        raise DemoError(f"GET {path}: {answer.status_code} {answer.text}")
    body: dict[str, Any] = answer.json()
    return body


def _launch(launch: dict[str, Any]) -> dict[str, Any]:
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


def _truth(client: httpx.Client, launches: list[dict[str, Any]], comparison: dict[str, Any]) -> dict[str, Any]:
    """Compute the true ratio from the engines' own step logs; only simulated engines write them."""
    if any(launch["build"]["source"]["kind"] != "simulated" for launch in launches):
        return {}
    with tempfile.TemporaryDirectory() as folder:
        arguments: list[str] = []
        for side in ("base", "head"):
            ours = [launch for launch in launches if launch["build"]["id"] == comparison[side]["id"]]
            arguments += [f"--{side}", *(_step_log(client, launch, Path(folder)) for launch in ours)]
        done = subprocess.run(
            [sys.executable, "-m", "images.simulated", "truth", *arguments], capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise DemoError(f"The truth could not be read from the step logs:\n{done.stderr}")
    ratios = json.loads(done.stdout)
    return {"truth": ratios["tpot_free"], "truths": ratios}


def _step_log(client: httpx.Client, launch: dict[str, Any], folder: Path) -> str:
    path = folder / f"{launch['id']}.steps"
    answer = client.get(f"/launches/{launch['id']}/artifacts/steps.log")
    if answer.is_error:
        raise DemoError(f"The step log of {launch['id']} is missing: {answer.status_code} {answer.text}")
    path.write_bytes(answer.content)
    return str(path)
