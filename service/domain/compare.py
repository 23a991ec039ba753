"""Is head slower than base? An interval on the ratio, from launches, and one of four verdicts.

The unit is the launch; its value is a positive number (the median of its valid repetitions), and everything is done
with logarithms, so that a difference of means is a ratio and base/head can be swapped without changing the answer.

**Estimate.** With launches in blocks (A B B A on one slot) the model is ``log value = block + side + noise``, fitted by
least squares: block means are taken out of both the values ``y`` and the side's indicator ``x`` (Frisch and Waugh 1933;
Lovell 1963), then ``d = sum(x y) / sum(x x)``, ``s^2 = sum((y - d x)^2) / (n - b - 1)``, ``var(d) = s^2 / sum(x x)``,
and the interval is Student's t with n - b - 1 degrees of freedom (the analysis of variance of a randomised block
design: Box, Hunter and Hunter, Statistics for Experimenters, 2nd ed. 2005, chapter 4). What a slot adds to all its
launches cancels, and A B B A also cancels a linear drift within the block. Blocks may be incomplete; one that holds one
side only is left out, of the sides' means too. Assumed: noise of launches is independent, of one size in logs, roughly
normal; the ratio is the same on every slot.

Without a block that holds both sides, the slots are the blocks (what differs between slots still cancels, what drifts
in time does not). Without a slot that holds both sides: Welch's interval (Welch 1947; degrees of freedom of
Satterthwaite 1946), which can't tell the builds from the slots; the method is part of the result so that pages say so.

**Decision.** ``m`` is the equivalence margin (0.02: two percent don't matter). In this order:
same, when the interval lies wholly inside [1/(1+m), 1+m], even if it excludes 1: a change too small to matter;
worse or better, when the interval excludes 1 and the point is outside the margin; else unknown. Between equal builds
worse and better together come up in at most 1 - confidence of all comparisons. Too few launches for a residual variance
give unknown and no interval.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from scipy.special import nctdtr, stdtrit

MAX_FORECAST = 200
"""A forecast above this many further launches is given as 'more than 200'."""

_BLOCK = 4
"""Forecasts count in blocks of A B B A: four launches that add one unit of information (sum(x x) = 1) and, less the
block's own mean, three degrees of freedom."""

_MAX_LOG = 600.0


class Side(StrEnum):
    """Which of the two builds a launch is of."""

    BASE = "base"
    HEAD = "head"


class Verdict(StrEnum):
    """What head is, next to base."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    UNKNOWN = "unknown"


class Method(StrEnum):
    """What was held constant between the two sides."""

    BLOCKS = "blocks"
    """Interleaved on one slot."""
    SLOTS = "slots"
    """The same slots, at different times."""
    UNPAIRED = "unpaired"
    """Nothing: Welch."""


@dataclass(frozen=True)
class Observation:
    """One launch. ``value`` is positive and finite; ``block`` and ``slot`` name where it was measured, if known."""

    side: Side
    value: float
    block: Hashable | None = None
    slot: Hashable | None = None

    def __post_init__(self) -> None:
        if not (self.value > 0 and math.isfinite(self.value)):
            raise ValueError(f"a launch's value must be positive and finite, not {self.value!r}")


@dataclass(frozen=True)
class Criterion:
    """How a verdict is reached: which direction is good, and the margin, confidence and power (all as fractions)."""

    lower_better: bool
    margin: float = 0.02
    confidence: float = 0.95
    power: float = 0.80


@dataclass(frozen=True)
class Estimate:
    """One side: geometric mean of its launches, with Student's interval of the mean log (None below two launches).

    Differences between slots widen it; the comparison is decided by the ratio, where they cancel.
    """

    launches: int
    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Comparison:
    """What the launches say. Ratios are head over base; ``low`` and ``high`` bound the ratio at the confidence.

    ``smallest_detectable`` is a ratio above 1: a true change of that size would have been seen (the interval excludes
    1) with the criterion's power. ``launches_needed`` is a forecast of how many further launches, both sides together,
    an unknown verdict needs; ``forecast_capped`` says that the true number is larger. ``residual_sd`` is the noise of
    one launch in logs, with ``degrees`` of freedom. ``counted`` says of every observation, in their order, whether it
    took part: one without a partner in its block doesn't.
    """

    verdict: Verdict
    method: Method | None
    base: Estimate
    head: Estimate
    ratio: float | None
    low: float | None
    high: float | None
    residual_sd: float | None
    degrees: float | None
    smallest_detectable: float | None
    launches_needed: int | None
    forecast_capped: bool
    counted: tuple[bool, ...]


@dataclass(frozen=True)
class _Fit:
    """A difference of logs, whose variance is ``scale**2 / information``."""

    method: Method
    difference: float
    scale: float
    degrees: float
    information: float
    counted: tuple[bool, ...]

    @property
    def error(self) -> float:
        return self.scale / math.sqrt(self.information)

    def half_width(self, confidence: float, blocks_more: int = 0) -> float:
        degrees = self.degrees + (_BLOCK - 1) * blocks_more
        return _quantile(confidence, degrees) * self.scale / math.sqrt(self.information + blocks_more)


def compare(observations: Sequence[Observation], criterion: Criterion) -> Comparison:
    """Return the verdict on head, with the interval, the smallest detectable change and the forecast behind it.

    Any numbers of launches on either side are fine, none included. Swapping the sides inverts the ratio and its
    interval and swaps better with worse; multiplying every value by one factor changes nothing but the estimates.
    """
    fit = _fit(observations)
    if fit is None:
        return _undecided(observations, criterion)
    used = [launch for launch, counts in zip(observations, fit.counted, strict=True) if counts]
    half = fit.half_width(criterion.confidence)
    verdict = _decide(fit.difference, half, criterion)
    needed, capped = (None, False) if verdict is not Verdict.UNKNOWN else _forecast(fit, criterion)
    return Comparison(
        verdict=verdict,
        method=fit.method,
        base=_estimate(used, Side.BASE, criterion.confidence),
        head=_estimate(used, Side.HEAD, criterion.confidence),
        ratio=_exp(fit.difference),
        low=_exp(fit.difference - half),
        high=_exp(fit.difference + half),
        residual_sd=fit.scale,
        degrees=fit.degrees,
        smallest_detectable=_exp(fit.error * _detectable(fit.degrees, criterion.confidence, criterion.power)),
        launches_needed=needed,
        forecast_capped=capped,
        counted=fit.counted,
    )


def _undecided(observations: Sequence[Observation], criterion: Criterion) -> Comparison:
    base, head = (_estimate(observations, side, criterion.confidence) for side in Side)
    return Comparison(
        verdict=Verdict.UNKNOWN,
        method=None,
        base=base,
        head=head,
        ratio=head.value / base.value if head.value is not None and base.value is not None else None,
        low=None,
        high=None,
        residual_sd=None,
        degrees=None,
        smallest_detectable=None,
        launches_needed=_BLOCK,
        forecast_capped=False,
        counted=(True,) * len(observations),
    )


def _decide(difference: float, half: float, criterion: Criterion) -> Verdict:
    limit = math.log1p(criterion.margin)
    if abs(difference) + half <= limit:
        return Verdict.SAME
    if abs(difference) > half and abs(difference) > limit:
        return Verdict.WORSE if (difference > 0) == criterion.lower_better else Verdict.BETTER
    return Verdict.UNKNOWN


def _forecast(fit: _Fit, criterion: Criterion) -> tuple[int, bool]:
    """Return how many further launches bring the half width to the distance that it must clear, and if that was capped.

    The distance is to 1 for a point outside the margin, to the margin's edge for a point inside. Further launches come
    in blocks of four, with the noise seen so far. About an even chance: the point moves too.
    """
    limit = math.log1p(criterion.margin)
    size = abs(fit.difference)
    distance = size if size > limit else limit - size
    for blocks in range(1, MAX_FORECAST // _BLOCK + 1):
        if fit.half_width(criterion.confidence, blocks) <= distance:
            return blocks * _BLOCK, False
    return MAX_FORECAST, True


def _fit(observations: Sequence[Observation]) -> _Fit | None:
    """The first method that leaves a residual variance; which one depends on the design alone, never on the values."""
    return (
        _fit_strata(observations, Method.BLOCKS, lambda launch: launch.block)
        or _fit_strata(observations, Method.SLOTS, lambda launch: launch.slot)
        or _fit_unpaired(observations)
    )


def _fit_strata(
    observations: Sequence[Observation], method: Method, stratum_of: Callable[[Observation], Hashable | None]
) -> _Fit | None:
    strata: dict[Hashable, list[Observation]] = defaultdict(list)
    for launch in observations:
        if (key := stratum_of(launch)) is not None:
            strata[key].append(launch)
    paired = {key: launches for key, launches in strata.items() if len({launch.side for launch in launches}) == 2}
    x, y = [], []
    for launches in paired.values():
        x += _centred([float(launch.side is Side.HEAD) for launch in launches])
        y += _centred([math.log(launch.value) for launch in launches])
    degrees = len(x) - len(paired) - 1
    if degrees < 1:
        return None
    information = math.fsum(a * a for a in x)
    difference = math.fsum(a * b for a, b in zip(x, y, strict=True)) / information
    residual = math.fsum((b - difference * a) ** 2 for a, b in zip(x, y, strict=True))
    counted = tuple(stratum_of(launch) in paired for launch in observations)
    return _Fit(method, difference, math.sqrt(residual / degrees), degrees, information, counted)


def _fit_unpaired(observations: Sequence[Observation]) -> _Fit | None:
    base, head = _logs(observations, Side.BASE), _logs(observations, Side.HEAD)
    if len(base) < 2 or len(head) < 2:
        return None
    difference = _mean(head) - _mean(base)
    parts = [_variance(logs) / len(logs) for logs in (base, head)]
    pooled = math.fsum(_variance(logs) * (len(logs) - 1) for logs in (base, head)) / (len(base) + len(head) - 2)
    squared_error, everyone = math.fsum(parts), (True,) * len(observations)
    if squared_error == 0:
        information = 1 / (1 / len(base) + 1 / len(head))
        return _Fit(Method.UNPAIRED, difference, 0.0, len(base) + len(head) - 2, information, everyone)
    degrees = 1 / math.fsum(
        (part / squared_error) ** 2 / (len(logs) - 1) for part, logs in zip(parts, (base, head), strict=True)
    )
    return _Fit(Method.UNPAIRED, difference, math.sqrt(pooled), degrees, pooled / squared_error, everyone)


def _estimate(observations: Sequence[Observation], side: Side, confidence: float) -> Estimate:
    logs = _logs(observations, side)
    if not logs:
        return Estimate(0, None, None, None)
    mean = _mean(logs)
    if len(logs) == 1:
        return Estimate(1, _exp(mean), None, None)
    half = _quantile(confidence, len(logs) - 1) * math.sqrt(_variance(logs) / len(logs))
    return Estimate(len(logs), _exp(mean), _exp(mean - half), _exp(mean + half))


def _detectable(degrees: float, confidence: float, power: float) -> float:
    """Return the true difference, in standard errors, that a two-sided t test finds, in its true direction, this often.

    Solves power = P(T' > t) for the noncentrality of Student's T' (Cohen, Statistical Power Analysis for the Behavioral
    Sciences, 2nd ed. 1988, chapter 2); t is the two-sided critical value. 2.80 for many degrees at 95 % and 80 %.
    """
    critical = _quantile(confidence, degrees)
    low, high = 0.0, critical + 40.0
    for _ in range(60):
        middle = (low + high) / 2
        seen = 1 - float(nctdtr(degrees, middle, critical))
        low, high = (low, middle) if seen >= power else (middle, high)
    return high


def _quantile(confidence: float, degrees: float) -> float:
    return float(stdtrit(degrees, (1 + confidence) / 2))


def _logs(observations: Sequence[Observation], side: Side) -> list[float]:
    return [math.log(launch.value) for launch in observations if launch.side is side]


def _mean(numbers: Sequence[float]) -> float:
    return math.fsum(numbers) / len(numbers)


def _variance(numbers: Sequence[float]) -> float:
    mean = _mean(numbers)
    return math.fsum((number - mean) ** 2 for number in numbers) / (len(numbers) - 1)


def _centred(numbers: Sequence[float]) -> list[float]:
    mean = _mean(numbers)
    return [number - mean for number in numbers]


def _exp(log: float) -> float:
    """The exponential, kept finite: an absurdly wide interval is still a number that JSON can hold."""
    return math.exp(max(-_MAX_LOG, min(_MAX_LOG, log)))
