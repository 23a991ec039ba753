"""The answers of two builds next to each other. Reads nothing: evaluations are passed in."""

from collections.abc import Sequence

from service.actions.comparison_views import AccuracyView, ScoreView
from service.actions.sentences import accuracy_sentence
from service.actions.views import EvaluationView
from service.domain.accuracy import compare_answers

Sides = tuple[Sequence[EvaluationView], Sequence[EvaluationView]]
"""Evaluations of base and of head, oldest first."""


def accuracy_of(sides: Sides, names: tuple[str, str], mark: str) -> AccuracyView | None:
    """Return the newest pair of scores on the same questions, compared; None when nobody was asked anything.

    Without such a pair the view says which scores there are and why they can't be compared.
    """
    if not any(sides):
        return None
    base, head = (_scored(side) for side in sides)
    pair = _pair(base, head)
    if pair is None:
        newest = tuple(side[-1] if side else None for side in (base, head))
        return AccuracyView(
            task=next(one.task for side in sides for one in side),
            label=next((one.label for one in newest if one is not None and one.label), None),
            base=_score(newest[0]),
            head=_score(newest[1]),
            sentence=f"Accuracy can't be compared: {_missing(sides, names)} ({mark}).",
        )
    one, other = pair
    found = compare_answers(one.strict_marks or "", other.strict_marks or "")
    label = one.label or one.task
    return AccuracyView(
        task=one.task,
        label=label,
        base=_score(one),
        head=_score(other),
        n=found.n,
        lost=found.lost,
        won=found.won,
        difference=found.difference,
        low=found.low,
        high=found.high,
        p_value=found.p_value,
        margin=found.margin,
        confidence=found.confidence,
        gate=found.gate,
        questions_needed=found.questions_needed,
        forecast_capped=found.forecast_capped,
        sentence=accuracy_sentence(names, label, found, mark),
    )


def score_note(evaluations: Sequence[EvaluationView]) -> str:
    """Return the newest score with its standard error in words, or why there is none; empty without evaluations."""
    scored = _scored(evaluations)
    if scored:
        one = scored[-1]
        error = f" ± {one.strict_stderr:.4f}" if one.strict_stderr is not None else ""
        return f"{one.strict:.4f}{error} (n = {one.n}, {one.label})"
    return f"undefined: {_why(evaluations)}" if evaluations else ""


def _scored(side: Sequence[EvaluationView]) -> list[EvaluationView]:
    return [one for one in side if one.strict is not None]


def _pair(
    base: Sequence[EvaluationView], head: Sequence[EvaluationView]
) -> tuple[EvaluationView, EvaluationView] | None:
    """The newest of each that were asked the same questions after the same examples."""
    for other in reversed(head):
        for one in reversed(base):
            if _asked(one) == _asked(other):
                return one, other
    return None


def _asked(one: EvaluationView) -> tuple[object, ...]:
    return one.task, one.questions, one.shots, one.n


def _score(one: EvaluationView | None) -> ScoreView | None:
    if one is None or one.strict is None or one.flexible is None or one.n is None:
        return None
    return ScoreView(
        n=one.n,
        strict=one.strict,
        strict_stderr=one.strict_stderr,
        flexible=one.flexible,
        flexible_stderr=one.flexible_stderr,
    )


def _missing(sides: Sides, names: tuple[str, str]) -> str:
    reasons = [
        f"{name} has no score: {_why(side) if side else 'it was not asked'}"
        for side, name in zip(sides, names, strict=True)
        if not _scored(side)
    ]
    return "; ".join(reasons) or f"{names[0]} and {names[1]} were not asked the same questions"


def _why(side: Sequence[EvaluationView]) -> str:
    failure = side[-1].failure
    return failure.message.splitlines()[0][:300] if failure and failure.message else "no reason was given"
