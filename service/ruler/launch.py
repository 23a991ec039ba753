"""A launch's value: repetitions on one server are not independent, so they are one number."""

import math
from collections.abc import Sequence
from statistics import median

from service.contract.builds import Wire
from service.ruler.metrics import METRICS, Metrics
from service.ruler.validity import Judgement, Validity

MIN_REPETITIONS = 3
"""Fewer usable repetitions than this give no value."""


class LaunchValue(Wire):
    """One metric of one launch, and how far its repetitions lie apart."""

    value: float
    """exp(median of log): the middle repetition, or the geometric mean of the middle two."""
    low: float
    high: float
    spread: float
    """high / low − 1."""
    repetitions: int


def usable(judgement: Judgement) -> bool:
    """Return whether a repetition counts: valid ones do, suspect ones do and are marked, invalid ones never."""
    return judgement.validity is not Validity.INVALID


def launch_value(values: Sequence[float | None]) -> LaunchValue | None:
    """Return the value of a metric over usable repetitions: exp(median of log).

    None if fewer than MIN_REPETITIONS of them have the metric, or if one is not above zero: it has no logarithm.
    """
    known = [value for value in values if value is not None]
    if len(known) < MIN_REPETITIONS or min(known) <= 0:
        return None
    low, high = min(known), max(known)
    middle = math.exp(median(math.log(value) for value in known))
    return LaunchValue(
        value=min(max(middle, low), high), low=low, high=high, spread=high / low - 1, repetitions=len(known)
    )


def launch_values(repetitions: Sequence[tuple[Metrics, Judgement]]) -> dict[str, LaunchValue]:
    """Return the launch's value of every metric that has one; empty if fewer than three repetitions are usable."""
    used = [metrics for metrics, judgement in repetitions if usable(judgement)]
    values = {name: launch_value([metrics.value(name) for metrics in used]) for name in METRICS}
    return {name: value for name, value in values.items() if value is not None}
