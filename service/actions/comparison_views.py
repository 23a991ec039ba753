"""What a comparison answers: frozen, JSON-able; the pages and the command line show it and compute nothing."""

from typing import Literal

from service.actions.views import BuildView, LaunchView
from service.contract.builds import Wire
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


class ComparisonView(Wire):
    """Head next to base, in one cell. ``rows[0]`` is the metric that was asked for; ``sentence`` is its verdict.

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
    launches: list[ComparedLaunch]
    other_cells: list[CellSummary]
