"""The demonstrations that compare two builds: simulated ones, or real vLLM on this machine's CPU."""

from dataclasses import dataclass
from typing import Any

import httpx

from demo import rest
from demo.evidence import evidence, held, launches_of, seconds_between, truth
from demo.stack import Layout, Stack

METRIC = "tpot_p50_ms"
_ASKED = ("kind", "metric", "recipe", "workload", "hardware", "blocks", "seed")


@dataclass(frozen=True)
class Comparison:
    """Two builds, and how many blocks of A B B A."""

    recipe: str
    workload: str
    base: str
    head: str
    blocks: int

    def submit(self, client: httpx.Client, seed: int) -> str:
        """Ask for it and return the id of the request."""
        asked = {
            "kind": "comparison",
            "base": self.base,
            "head": self.head,
            "recipe": self.recipe,
            "workload": self.workload,
            "metric": METRIC,
            "blocks": self.blocks,
            "seed": seed,
        }
        request_id: str = rest.post(client, "/requests", asked, key="demo")["id"]
        launches = 4 * self.blocks
        print(f"Submitted {request_id}: {self.base} against {self.head}, {launches} launches, A B B A", flush=True)
        return request_id

    def follow(self, stack: Stack, request_id: str) -> int:
        """Show it live to its end, then what it found; return the exit status."""
        status = stack.watch(["requests", "watch", request_id])
        return status or stack.watch(["requests", "comparison", request_id])

    def collect(self, client: httpx.Client, request_id: str) -> dict[str, Any]:
        """Return the finding of the finished request, read back over REST."""
        request = rest.get(client, f"/requests/{request_id}")
        comparison = rest.get(client, f"/requests/{request_id}/comparison?metric={METRIC}")
        ids = [job["launch_id"] for job in request["jobs"] if job["launch_id"] is not None]
        launches = launches_of(client, ids)
        row = comparison["rows"][0]
        sides = [
            [launch for launch in launches if launch["build"]["id"] == comparison[side]["id"]]
            for side in ("base", "head")
        ]
        return {
            "asked": {
                **{name: request[name] for name in _ASKED},
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
            "seconds": seconds_between(request["created_at"], request["ended_at"]),
            **evidence(launches),
            **truth(client, *sides),
        }

    def conclude(self, finding: dict[str, Any], _client: httpx.Client, layout: Layout) -> None:
        """Print what was found, and where to look."""
        print(f"\n{finding['sentence']}")
        if line := held(finding):
            print(line)
        minutes = finding["seconds"] / 60
        print(f"{len(finding['launch_ids'])} launches in {minutes:.1f} minutes; written to {layout.finding}")
        print(f"Dashboard: {layout.url}/requests/{finding['request_id']}", flush=True)
