"""A verdict in one sentence, for engineers: what is compared, how much, how sure, and from what."""

from service.actions.comparison_views import CellSummary
from service.domain.accuracy import MAX_QUESTIONS, AccuracyChange, Gate
from service.domain.compare import MAX_FORECAST, Comparison, Criterion, Verdict
from service.ruler.metrics import MetricInfo


def verdict_sentence(base: str, head: str, info: MetricInfo, found: Comparison, criterion: Criterion, mark: str) -> str:
    """Return one sentence such as: v0.19.1 is worse than v0.18.0: TPOT p50 is 1.47 times as high (95 % interval 1.44 to
    1.50, 8 launches, simulated, time compressed 4×)."""
    if found.ratio is None or found.low is None or found.high is None:
        return _without_interval(base, head, info, found, mark)
    decimals = _decimals(found.high - found.low)
    ratio, low, high = (_ratio(value, decimals) for value in (found.ratio, found.low, found.high))
    launches = found.base.launches + found.head.launches
    size = (
        f"{info.label} is {ratio} times as high "
        f"({criterion.confidence * 100:.3g} % interval {low} to {high}, {launches} launches, {mark})"
    )
    if found.verdict is Verdict.SAME:
        return f"{head} is the same as {base} within {percent(criterion.margin)}: {size}."
    if found.verdict is not Verdict.UNKNOWN:
        return f"{head} is {found.verdict.value} than {base}: {size}."
    if found.low > 1 or found.high < 1:
        doubt = f"the change from {base} to {head} is more than {percent(criterion.margin)}"
    else:
        doubt = f"{head} is better or worse than {base}"
    return f"It is unknown whether {doubt}: {size}; {launches_more(found)} needed."


def launches_more(found: Comparison) -> str:
    """Return the forecast, such as: about 12 launches more are."""
    if found.forecast_capped:
        return f"more than {MAX_FORECAST} launches more are"
    return f"about {found.launches_needed} launches more are"


def accuracy_sentence(names: tuple[str, str], label: str, found: AccuracyChange, mark: str) -> str:
    """Return one sentence such as: v0.19.1 answers as v0.18.0 does, within 2 points: gsm8k 0.9280 against 0.9204, a
    difference of +0.8 points (95 % interval -0.3 to +1.8, 1319 questions, McNemar's p 0.18, simulated)."""
    base, head = names
    size = (
        f"{label} {found.head.accuracy:.4f} against {found.base.accuracy:.4f}, a difference of "
        f"{points(found.difference)} points ({found.confidence * 100:.3g} % interval {points(found.low)} to "
        f"{points(found.high)}, {found.n} questions, McNemar's p {found.p_value:.2g}, {mark})"
    )
    margin = f"{found.margin * 100:g} points"
    if found.gate is Gate.UNCHANGED:
        return f"{head} answers as {base} does, within {margin}: {size}."
    if found.gate is Gate.BROKEN:
        return f"{head} gives wrong answers where {base} gave right ones, beyond {margin}: {size}."
    more = f"more than {MAX_QUESTIONS}" if found.forecast_capped else f"about {found.questions_needed}"
    doubt = f"whether {head} answers as {base} does, within {margin}"
    return f"It is unknown {doubt}: {size}; {more} questions more are needed."


def points(fraction: float) -> str:
    """Return a difference of two shares in points, with its sign: +0.8."""
    return f"{fraction * 100:+.1f}"


def marks(cell: CellSummary) -> str:
    """Return what kind of numbers these are: ``simulated, time compressed 4×``, or ``real, cpu``."""
    kind = "simulated" if cell.simulated else f"real, {cell.hardware}"
    return kind if cell.time_compression == 1 else f"{kind}, time compressed {cell.time_compression:g}×"


def percent(fraction: float) -> str:
    """Return a fraction in percent with two significant digits: 2 %, 0.46 %, 47 %."""
    return f"{fraction * 100:.2g} %" if fraction < 1 else f"{fraction * 100:,.0f} %"


def _without_interval(base: str, head: str, info: MetricInfo, found: Comparison, mark: str) -> str:
    counted = f"{found.base.launches} of {base} and {found.head.launches} of {head}, {mark}"
    missing = [name for name, side in ((base, found.base), (head, found.head)) if side.launches == 0]
    if missing:
        have = "have" if len(missing) > 1 else "has"
        return (
            f"Nothing is known yet about {head} next to {base}: {' and '.join(missing)} {have} no usable launch with "
            f"{info.label} in this cell ({counted})."
        )
    return (
        f"It is unknown whether {head} is better or worse than {base}: too few launches for an interval, {info.label} "
        f"({counted}); at least {found.launches_needed} more are needed."
    )


def _decimals(width: float) -> int:
    """As many decimals as an interval of this width is worth."""
    return 2 if width >= 0.02 else 3 if width >= 0.002 else 4


def _ratio(value: float, decimals: int) -> str:
    return f"{value:.3g}" if value >= 100 or value < 10**-decimals else f"{value:.{decimals}f}"
