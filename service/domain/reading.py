"""A bisect's evidence as its engine reads it: the builds that can be measured, their launches, and the posterior.

A build is unmeasurable when it is broken, or when at least two of its launches ended without a usable value and more
did than not. The posterior is over measurable builds only; steps that only unmeasurable ones separate are one group,
which nothing can tell apart: it is found as a whole, and its probability is shared out evenly.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from service.domain.evidence import Evidence, Outcome, Picture
from service.domain.posterior import Launch, Posterior, Prior, fit

_FLOOR = 0.01
"""A value of 0 or below (an accuracy of no right answer has no logarithm) counts as this part of the smallest above."""


@dataclass(frozen=True)
class Group:
    """Steps that can't be told apart, between two measurable builds next to each other."""

    good: int
    bad: int

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(range(self.good, self.bad))


@dataclass(frozen=True)
class Line:
    """The measurable builds of a lineup of ``length``, from good to bad."""

    length: int
    nodes: tuple[int, ...]

    @property
    def skipped(self) -> tuple[int, ...]:
        return tuple(version for version in range(self.length) if version not in self.nodes)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        return tuple(Group(a, b) for a, b in zip(self.nodes, self.nodes[1:], strict=False))

    @property
    def weights(self) -> tuple[float, ...]:
        """Every step of the lineup is as likely as any other."""
        return tuple(float(group.bad - group.good) for group in self.groups)

    @property
    def lost_end(self) -> int | None:
        """The end that can't be measured, if there is one."""
        ends = (0, self.length - 1)
        return next((end for end in ends if end not in self.nodes), None)


@dataclass(frozen=True)
class Reading:
    """The posterior over a line, from some of the evidence's launches."""

    line: Line
    launches: tuple[Launch, ...]

    @cached_property
    def posterior(self) -> Posterior:
        return fit(self.launches, self.line.weights)

    @property
    def best(self) -> int:
        """The number of the group that most likely brought the regression; of equals the first."""
        return int(np.argmax(np.round(self.posterior.steps, 9)))

    def changed(self, group: int) -> float:
        """Return P(a group brought a change for the worse)."""
        return min(1.0, float(self.posterior.changed[group]))

    def size(self, group: int) -> float | None:
        """Return the expected change of a group in logs, worse pointing up; None where it can't be the primary one."""
        return self.posterior.size(group)

    def worse(self, limit: float = 0.0) -> float:
        """Return P(the bad end is worse than the good end by more than ``limit``, in logs)."""
        return min(1.0, max(0.0, self.posterior.total_above(limit)))

    @property
    def picture(self) -> Picture:
        found = [0.0] * (self.line.length - 1)
        for group, chance in zip(self.line.groups, self.posterior.steps.tolist(), strict=True):
            for step in group.steps:
                found[step] = chance / len(group.steps)
        total = math.fsum([self.posterior.none, *found])
        return Picture(self.posterior.none / total, tuple(chance / total for chance in found))


def line(evidence: Evidence) -> Line:
    """Return the line of the builds that can be measured."""
    lost = Counter(outcome.version for outcome in evidence.outcomes if not usable(outcome))
    fine = Counter(outcome.version for outcome in evidence.outcomes if usable(outcome))
    gone = evidence.broken | {version for version, times in lost.items() if times >= 2 and times > fine[version]}
    return Line(len(evidence.names), tuple(v for v in range(len(evidence.names)) if v not in gone))


def read(evidence: Evidence, along: Line, outcomes: Iterable[Outcome]) -> Reading:
    """Return the posterior over ``along`` from those of ``outcomes`` that are usable and lie on it.

    In whatever order they ended: sums of logs are taken in one order.
    """
    number = {version: node for node, version in enumerate(along.nodes)}
    slots = {name: i for i, name in enumerate(sorted({outcome.slot for outcome in evidence.outcomes}))}
    positive = [o.value for o in evidence.outcomes if o.value is not None and usable(o) and o.value > 0]
    floor = _FLOOR * min(positive, default=1.0)
    sign = 1.0 if evidence.aim.lower_better else -1.0
    found = [
        Launch(number[outcome.version], sign * math.log(max(outcome.value, floor)), slots[outcome.slot])
        for outcome in outcomes
        if outcome.value is not None and usable(outcome) and outcome.version in number
    ]
    return Reading(along, tuple(sorted(found, key=lambda launch: (launch.slot, launch.node, launch.value))))


def positive(evidence: Evidence, outcome: Outcome) -> float:
    """Return a usable outcome's value as one that has a logarithm."""
    values = [o.value for o in evidence.outcomes if o.value is not None and usable(o) and o.value > 0]
    return max(outcome.value or 0.0, _FLOOR * min(values, default=1.0))


def usable(outcome: Outcome) -> bool:
    """Return whether a launch has a value to reckon with."""
    return outcome.value is not None and math.isfinite(outcome.value)


def noise(reading: Reading) -> float:
    """Return the noise of one launch in logs, as the launches say it, averaged over the hypotheses."""
    posterior = reading.posterior
    if not reading.launches:
        return Prior().noise_sd
    return float(math.sqrt(posterior.weight @ posterior.scale2[posterior.row]))
