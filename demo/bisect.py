"""The demonstration that bisects: which of twelve simulated releases made it worse."""

from dataclasses import dataclass
from typing import Any

import httpx

from demo import rest
from demo.evidence import evidence, held, launches_of, seconds_between, truth
from demo.stack import Layout, Stack

VERDICTS = {"confirmed": "worse", "range": "worse", "not_reproduced": "same"}
"""Of each answer; every other is unknown."""
_ASKED = ("metric", "seed")


@dataclass(frozen=True)
class Bisect:
    """The two ends, and what became worse between them."""

    recipe: str
    workload: str
    good: str
    bad: str
    metric: str
    gsm8k: bool = True

    def submit(self, client: httpx.Client, seed: int) -> str:
        """Ask for it and return the id of the bisect."""
        asked = {
            "good": self.good,
            "bad": self.bad,
            "recipe": self.recipe,
            "workload": self.workload,
            "metric": self.metric,
            "gsm8k": self.gsm8k,
            "seed": seed,
        }
        bisect_id: str = rest.post(client, "/bisects", asked, key=f"demo {self.metric}")["id"]
        accuracy = ", gsm8k with it" if self.gsm8k else ""
        print(
            f"Submitted {bisect_id}: bisect good={self.good} bad={self.bad} metric={self.metric}{accuracy}", flush=True
        )
        return bisect_id

    def follow(self, stack: Stack, bisect_id: str) -> int:
        """Show it live to its end, then what it found; return the exit status."""
        return stack.watch(["bisect", "watch", bisect_id])

    def collect(self, client: httpx.Client, bisect_id: str) -> dict[str, Any]:
        """Return the finding of the finished bisect, read back over REST."""
        view = rest.get(client, f"/bisects/{bisect_id}")
        found = view["finding"]
        points = sorted((point for one in view["lineup"] for point in one["points"]), key=lambda point: point["at"])
        launches = launches_of(client, [point["launch_id"] for point in points])
        return {
            "asked": {
                **{name: view[name] for name in _ASKED},
                "kind": "bisect",
                "good": view["good"]["name"],
                "bad": view["bad"]["name"],
                "recipe": view["cell"]["recipe"],
                "workload": view["cell"]["workload"],
                "hardware": view["cell"]["hardware"],
                "gsm8k": view["aim"]["gsm8k"],
            },
            "answer": found["answer"],
            "verdict": VERDICTS.get(found["answer"], "unknown"),
            "sentence": found["sentence"],
            "metric": view["metric"],
            "last_good": found["last_good"],
            "first_bad": found["first_bad"],
            "ratio": found["ratio"],
            "interval": None if found["low"] is None else [found["low"], found["high"]],
            "confidence": found["confidence"],
            "candidates": [[one["last_good"], one["first_bad"]] for one in found["candidates"]],
            "skipped": [one["name"] for one in found["skipped"]],
            "skipped_because": {one["name"]: one["why"] for one in found["skipped"]},
            "accuracy": {
                "sentence": found["accuracy"],
                "gsm8k": {one["name"]: one["gsm8k"] for one in view["lineup"]},
            },
            "bisect_id": bisect_id,
            "request_id": view["request_id"],
            "slot_minutes": view["slot_minutes"],
            "seconds": seconds_between(view["created_at"], view["ended_at"]),
            **evidence(launches),
            **self._truth(client, view, launches),
        }

    def _truth(self, client: httpx.Client, view: dict[str, Any], launches: list[dict[str, Any]]) -> dict[str, Any]:
        """The truth about speed, from the two neighbours' confirmation launches; accuracy has no step log."""
        if view["metric"] == "gsm8k":
            return {}
        found = view["finding"]
        version = {point["launch_id"]: one["name"] for one in view["lineup"] for point in one["points"]}
        fresh = [one for one in launches if one["id"] in found["confirmation"]]
        sides = [[one for one in fresh if version[one["id"]] == found[end]] for end in ("last_good", "first_bad")]
        return truth(client, *sides)

    def conclude(self, finding: dict[str, Any], client: httpx.Client, layout: Layout) -> None:
        """Write the report, and print what was found and where to look. The table was shown by the watch."""
        layout.report.write_bytes(rest.download(client, f"/bisects/{finding['bisect_id']}/report"))
        print(f"\n{finding['sentence']}")
        if finding["accuracy"]["sentence"]:
            print(finding["accuracy"]["sentence"])
        if line := held(finding):
            print(line)
        print(
            f"{len(finding['launch_ids'])} launches and {finding['slot_minutes']:.1f} slot-minutes in "
            f"{finding['seconds'] / 60:.1f} minutes"
        )
        print(f"Report for an issue: {layout.report}; for programs: {layout.finding}")
        print(f"Dashboard: {layout.url}/bisects/{finding['bisect_id']}", flush=True)
