"""Did the answers get worse? Two builds on the same questions, question by question.

The unit is the question, and the pairs decide: what both builds answer rightly, or both wrongly, says nothing about the
difference. With ``lost`` questions that only base answers rightly and ``won`` that only head does, the difference is
``(won - lost) / n``; whether there is one at all is McNemar's test (McNemar 1947) in its exact form, binomial with
probability one half; its interval is the score interval for paired proportions (Tango, Statistics in Medicine 17, 1998,
891-908), which keeps its coverage where few or no answers differ.

The gate asks whether accuracy is unchanged within ``margin``: yes if the whole interval lies above ``-margin``, broken
if the whole interval lies below, else unknown, with a forecast of the questions that would decide it if answers went on
to differ as often. Better answers never close the gate.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from scipy.special import bdtr, ndtri

MARGIN = 0.02
"""Two points: about what two published runs of one unchanged model differ by (vllm-project/vllm issue 45943)."""
MAX_QUESTIONS = 50_000
"""A forecast of more further questions is given as more than this."""


class Gate(StrEnum):
    """Whether head may be called as accurate as base."""

    UNCHANGED = "unchanged"
    BROKEN = "broken"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Score:
    """The share of right answers, from 0 to 1, and its standard error sqrt(p (1 - p) / (n - 1)) (None for n = 1)."""

    n: int
    right: int
    accuracy: float
    stderr: float | None


@dataclass(frozen=True)
class AccuracyChange:
    """Head next to base. ``difference``, ``low`` and ``high`` are head minus base, as fractions (0.01 is one point).

    ``p_value`` is McNemar's. ``questions_needed`` is how many further questions an unknown gate needs, about;
    ``forecast_capped`` says that the true number is larger.
    """

    n: int
    base: Score
    head: Score
    lost: int
    won: int
    difference: float
    low: float
    high: float
    p_value: float
    margin: float
    confidence: float
    gate: Gate
    questions_needed: int | None
    forecast_capped: bool


def score(marks: str) -> Score:
    """Return the score of marks such as ``1101``. Raises ValueError when there are none."""
    n, right = len(marks), marks.count("1")
    if n == 0 or right + marks.count("0") != n:
        raise ValueError("marks are one 0 or 1 for each question")
    accuracy = right / n
    return Score(n, right, accuracy, math.sqrt(accuracy * (1 - accuracy) / (n - 1)) if n > 1 else None)


def compare_answers(base: str, head: str, margin: float = MARGIN, confidence: float = 0.95) -> AccuracyChange:
    """Compare the marks of two builds on the same questions, in the same order.

    Raises ValueError when they are not of one length.
    """
    if len(base) != len(head):
        raise ValueError(f"{len(base)} and {len(head)} questions can't be paired")
    scores = score(base), score(head)
    n = len(base)
    lost = sum(a == "1" and b == "0" for a, b in zip(base, head, strict=True))
    won = sum(a == "0" and b == "1" for a, b in zip(base, head, strict=True))
    low, high = paired_interval(lost, won, n, confidence)
    gate = _gate(low, high, margin)
    needed, capped = (None, False) if gate is not Gate.UNKNOWN else _forecast(lost, won, n, margin, confidence)
    return AccuracyChange(
        n=n,
        base=scores[0],
        head=scores[1],
        lost=lost,
        won=won,
        difference=(won - lost) / n,
        low=low,
        high=high,
        p_value=mcnemar(lost, won),
        margin=margin,
        confidence=confidence,
        gate=gate,
        questions_needed=needed,
        forecast_capped=capped,
    )


def mcnemar(lost: int, won: int) -> float:
    """Return the two-sided exact p-value that answers differ by chance: both ways are equally likely."""
    return min(1.0, 2 * float(bdtr(min(lost, won), lost + won, 0.5))) if lost + won else 1.0


def paired_interval(lost: float, won: float, n: float, confidence: float = 0.95) -> tuple[float, float]:
    """Return Tango's score interval of (won - lost) / n, within [-1, 1]."""
    z = float(ndtri((1 + confidence) / 2))
    estimate = (won - lost) / n
    return _root(lost, won, n, z, (-1.0, estimate)), _root(lost, won, n, -z, (estimate, 1.0))


def _gate(low: float, high: float, margin: float) -> Gate:
    if low > -margin:
        return Gate.UNCHANGED
    return Gate.BROKEN if high < -margin else Gate.UNKNOWN


def _forecast(lost: int, won: int, n: int, margin: float, confidence: float) -> tuple[int, bool]:
    """Return how many further questions decide the gate, to within two percent, and whether that was capped."""
    total = float(n)
    while total - n <= MAX_QUESTIONS:
        total = math.ceil(total * 1.02 + 1)
        share = total / n
        if _gate(*paired_interval(lost * share, won * share, total, confidence), margin) is not Gate.UNKNOWN:
            return int(total) - n, False
    return MAX_QUESTIONS, True


def _root(lost: float, won: float, n: float, target: float, bounds: tuple[float, float]) -> float:
    """Return where the score statistic, which falls as the difference grows, has the value ``target``."""
    low, high = bounds
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _statistic(lost, won, n, middle) > target else (low, middle)
    return (low + high) / 2


def _statistic(lost: float, won: float, n: float, difference: float) -> float:
    """Return Tango's statistic for the hypothesis that the true difference is ``difference`` (his equations 6 to 9)."""
    a = 2 * n
    b = -won - lost + (2 * n - won + lost) * difference
    c = -lost * difference * (1 - difference)
    nuisance = (math.sqrt(max(0.0, b * b - 4 * a * c)) - b) / (2 * a)
    variance = n * (2 * nuisance + difference * (1 - difference))
    distance = won - lost - n * difference
    if variance <= 0:
        return math.copysign(math.inf, distance) if distance else 0.0
    return distance / math.sqrt(variance)
