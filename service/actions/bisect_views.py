"""What a bisect answers: frozen, JSON-able; the pages, the report and the command line show it and compute nothing."""

from datetime import datetime

from service.actions.comparison_views import CellSummary
from service.actions.views import BuildView, JobView
from service.contract.builds import Wire
from service.domain.bisect import Answer, Phase
from service.domain.states import BisectState


class AimView(Wire):
    """What the bisect was asked to find out, and how far it may go.

    ``metric`` is the metric's label, for sentences.
    ``smallest`` is the smallest change that matters, as a fraction; ``confidence`` what a step needs before it is
    confirmed; ``max_launches`` what may be spent.
    """

    lower_better: bool
    metric: str
    smallest: float
    confidence: float
    max_launches: int
    confirm_blocks: int
    gsm8k: bool


class PairView(Wire):
    """One step of the lineup: two neighbours by name."""

    last_good: str
    first_bad: str


class ShareView(PairView):
    """How likely it is that the change lies in this step."""

    probability: float


class PictureView(Wire):
    """The posterior: that nothing changed, or between which neighbours the change lies. Sums to one."""

    none: float
    steps: list[ShareView]

    @property
    def leading(self) -> ShareView:
        """The most likely step."""
        return max(self.steps, key=lambda share: share.probability)


class ForecastView(Wire):
    """How many launches more are expected (with a range), and in about how many minutes."""

    launches_low: float
    launches: float
    launches_high: float
    minutes: float | None


class OrderView(Wire):
    """What a step ordered: one launch, or a block of launches in this order on one slot, and why.

    ``block`` names the jobs that it became; ``bits`` is the information expected of a launch that searches.
    """

    phase: Phase
    block: int
    builds: list[str]
    versions: list[int]
    reason: str
    bits: float | None


class StepView(Wire):
    """One decision of the planner, as it was made: what was known, what it means, what was ordered.

    ``orders`` is empty for a step that waits for what is pending or that ends the bisect.
    """

    number: int
    at: datetime
    phase: Phase | None
    orders: list[OrderView]
    reason: str
    picture: PictureView
    forecast: ForecastView
    launches_done: int
    launches_pending: int
    slot_minutes: float


class PointView(Wire):
    """One launch of a version. ``value`` is None where it gave none: ``unused_because`` says why."""

    launch_id: str
    value: float | None
    unused_because: str
    phase: Phase
    block: int
    position: int
    slot_id: str
    at: datetime


class VersionView(Wire):
    """One version of the lineup, in order. ``name`` joins the names of builds that are the same thing.

    ``value``, ``low``, ``high``: geometric mean of its launches and its interval, in the unit of the metric (the
    interval from two launches on). ``metrics`` has the geometric means of all metrics. ``gsm8k`` is its accuracy from
    0 to 1. ``broken`` versions could not be measured, and ``why`` says what happened; they are never blamed.
    """

    index: int
    name: str
    build: BuildView
    launches: int
    value: float | None
    low: float | None
    high: float | None
    metrics: dict[str, float]
    gsm8k: float | None
    gsm8k_note: str
    broken: bool
    why: str
    points: list[PointView]


class SkippedView(Wire):
    """A version that could not be measured."""

    name: str
    why: str


class FindingView(Wire):
    """How a bisect ended. ``ratio``, ``low``, ``high``: first bad over last good, from ``confirmation`` launches alone.

    ``candidates`` are the steps that can't be told apart (one, where the answer is confirmed). ``confidence`` is the
    posterior that the change is there before it was confirmed. ``accuracy`` is a sentence on gsm8k, empty where it was
    not asked for.
    """

    answer: Answer
    last_good: str | None
    first_bad: str | None
    candidates: list[PairView]
    ratio: float | None
    low: float | None
    high: float | None
    confidence: float | None
    ends_ratio: float | None
    ends_low: float | None
    ends_high: float | None
    skipped: list[SkippedView]
    launches: dict[str, int]
    confirmation: list[str]
    sentence: str
    accuracy: str


class BisectSummary(Wire):
    """A bisect in a list. ``sentence`` is the finding's, or else what is known now."""

    id: str
    request_id: str
    state: BisectState
    answer: Answer | None
    reason: str | None
    paused: bool
    cancel_requested: bool
    submitter: str
    metric: str
    label: str
    unit: str
    good: BuildView
    bad: BuildView
    versions: int
    cell: CellSummary
    marks: str
    sentence: str
    launches_done: int
    launches_pending: int
    slot_minutes: float
    seed: int
    priority: int
    created_at: datetime
    ended_at: datetime | None


class BisectView(BisectSummary):
    """A bisect with everything that it knows and did. ``picture`` and ``forecast`` are None before its first step."""

    aim: AimView
    lineup: list[VersionView]
    steps: list[StepView]
    picture: PictureView | None
    forecast: ForecastView | None
    finding: FindingView | None
    jobs: list[JobView]
