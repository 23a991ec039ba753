"""A bisect on a bench: launches drawn from a known truth, two slots, and the engine asked after every launch that ends.

Time is simulated: every launch takes about as long as any other, and one that can't start takes none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from service.domain.bisect import Aim, Decision, Evidence, Finding, Outcome, Pending, Phase, decide

Measure = Callable[[np.random.Generator, int, str], float | None]
NAMES = (
    *("v0.18.0", "v0.18.1", "v0.19.0", "v0.19.1", "v0.20.0", "v0.20.1"),
    *("v0.20.2", "v0.21.0", "v0.22.0", "v0.22.1", "v0.23.0", "v0.24.0"),
)


@dataclass
class Running:
    """A block that a slot is at work on: the versions still to launch, and when the one in hand ends."""

    phase: Phase
    block: int
    versions: list[int]
    position: int
    ends_at: float


@dataclass
class Bench:
    """Runs one bisect to its finding; ``steps`` holds every decision with the evidence that it was made from."""

    names: tuple[str, ...]
    aim: Aim
    measure: Measure
    rng: np.random.Generator
    crashing: frozenset[int] = frozenset()
    slots: tuple[str, ...] = ("slot_a", "slot_b")
    outcomes: list[Outcome] = field(default_factory=list)
    broken: set[int] = field(default_factory=set)
    busy: dict[str, Running] = field(default_factory=dict)
    steps: list[tuple[Evidence, Decision]] = field(default_factory=list)
    at: float = 0.0
    block: int = 0

    def run(self) -> Finding:
        """Return the finding. Fails when the engine neither orders nor waits for anything, or goes on for too long."""
        for _ in range(20 * self.aim.max_launches):
            evidence = self.evidence()
            decision = decide(evidence)
            self.steps.append((evidence, decision))
            if decision.finding is not None:
                return decision.finding
            assert len(decision.orders) <= evidence.free_slots
            self._start(decision)
            assert self.busy, "nothing is ordered, nothing is pending, and there is no finding"
            self._end_one()
        raise AssertionError("the bisect did not end")

    def evidence(self) -> Evidence:
        pending = tuple(
            Pending(version, running.phase, running.block)
            for running in self.busy.values()
            for version in running.versions
        )
        free = len(self.slots) - len(self.busy)
        broken = frozenset(self.broken)
        return Evidence(
            self.names, tuple(self.outcomes), pending, broken, free, self.aim, cost_s=1.0, next_block=self.block
        )

    def launches(self) -> int:
        return len(self.outcomes)

    def _start(self, decision: Decision) -> None:
        free = [slot for slot in self.slots if slot not in self.busy]
        for order, slot in zip(decision.orders, free, strict=False):
            ends_at = self.at + self._takes()
            self.busy[slot] = Running(order.phase, self.block, list(order.versions), 0, ends_at)
            self.block += 1

    def _end_one(self) -> None:
        slot = min(self.busy, key=lambda name: (self.busy[name].ends_at, name))
        running = self.busy[slot]
        self.at = running.ends_at
        version = running.versions.pop(0)
        if version in self.crashing:
            self.broken.add(version)
            running.versions = [other for other in running.versions if other != version]
        else:
            value = self.measure(self.rng, version, slot)
            self.outcomes.append(Outcome(version, value, running.phase, running.block, running.position, slot))
        running.position += 1
        running.ends_at = self.at + self._takes()
        if not running.versions:
            del self.busy[slot]

    def _takes(self) -> float:
        return 1.0 + 0.1 * float(self.rng.random())


def levels(values: Sequence[float], sd: float, slot_sd: float = 0.0) -> Measure:
    """Return launches around ``values`` with a relative noise of ``sd``, and a fixed offset of the second slot."""

    def measure(rng: np.random.Generator, version: int, slot: str) -> float:
        offset = slot_sd if slot == "slot_b" else 0.0
        return float(values[version] * np.exp(offset + rng.normal(0, sd)))

    return measure


def steps(count: int, base: float, changes: dict[int, float]) -> list[float]:
    """Return the values of ``count`` versions that start at ``base`` and are multiplied at the versions named."""
    found = []
    for version in range(count):
        base *= changes.get(version, 1.0)
        found.append(base)
    return found


def replayed(bench: Bench) -> bool:
    """Return whether every decision comes out the same again, also with the launches in another order."""
    for evidence, decision in bench.steps:
        backwards = replace(evidence, outcomes=tuple(reversed(evidence.outcomes)))
        if decide(evidence) != decision or decide(backwards) != decision:
            return False
    return True
