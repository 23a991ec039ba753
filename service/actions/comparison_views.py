"""What a comparison answers: frozen, JSON-able; the pages and the command line show it and compute nothing."""

from typing import Literal

from service.actions.views import BuildView, LaunchView
from service.contract.builds import Wire
from service.domain.accuracy import Gate
from service.domain.compare import Method, Side, Verdict


class SideView(Wire):
    """One side of one metric: geometric mean of its launches with its interval (None below two launches)."""

    launches: int
    value: float | None
    low: float | None
    high: float | None


class MetricRow(Wire):
    """One metric, compared. ``ratio``, ``low`` and ``high`` are head over base; service.domain.compare says how."""

    metric: str
    label: str
    unit: str
    direction: Literal["lower_better", "higher_better"]
    margin: float
    base: SideView
    head: SideView
    ratio: float | None
    low: float | None
    high: float | None
    verdict: Verdict
    method: Method | None
    residual_sd: float | None
    degrees: float | None
    smallest_detectable: float | None
    launches_needed: int | None
    forecast_capped: bool
    sentence: str


class ComparedLaunch(Wire):
    """A launch of either side. ``used`` is False for one that gives no evidence, and ``unused_because`` says why."""

    side: Side
    used: bool
    unused_because: str
    launch: LaunchView


class CellSummary(Wire):
    """The cell in words; ``ruler_version`` is None while nothing was measured."""

    digest: str
    recipe: str
    workload: str
    hardware: str
    simulated: bool
    time_compression: float
    ruler_version: int | None


class ScoreView(Wire):
    """The share of right answers by either filter, from 0 to 1, with its standard error."""

    n: int
    strict: float
    strict_stderr: float | None
    flexible: float
    flexible_stderr: float | None


class AccuracyView(Wire):
    """The answers of both builds to the same questions, compared; service.domain.accuracy says how.

    ``lost`` questions only base answers rightly, ``won`` only head. ``difference``, ``low`` and ``high`` are head minus
    base by strict match, as fractions. All but the scores is None where the two can't be compared; then ``sentence``
    says why.
    """

    task: str
    label: str | None
    base: ScoreView | None
    head: ScoreView | None
    n: int | None = None
    lost: int | None = None
    won: int | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    margin: float | None = None
    confidence: float | None = None
    gate: Gate | None = None
    questions_needed: int | None = None
    forecast_capped: bool = False
    sentence: str


class ComparisonView(Wire):
    """Head next to base, in one cell. ``rows[0]`` is the metric that was asked for; ``sentence`` is its verdict, after
    the one on accuracy if that is broken. ``accuracy`` is None where nobody was asked for answers.

    ``marks`` says what kind of numbers these are, such as ``simulated, time compressed 4×``. ``notes`` is what to know
    before believing them. ``other_cells`` are further cells that both builds were measured in. ``differences`` is how
    the two sides were started differently, beside being other builds. Times are as measured, compressed if marked so.
    """

    base: BuildView
    head: BuildView
    cell: CellSummary
    request_id: str | None
    metric: str
    confidence: float
    verdict: Verdict
    sentence: str
    marks: str
    notes: list[str]
    differences: list[str]
    rows: list[MetricRow]
    accuracy: AccuracyView | None = None
    launches: list[ComparedLaunch]
    other_cells: list[CellSummary]
