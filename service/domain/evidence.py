"""What a bisect knows and what it may decide: the plain values that go into and come out of service.domain.bisect.

Everything here can be rebuilt from stored rows. Versions are indices into the lineup, from the good end (0) to the bad
end; step ``i`` lies between versions ``i`` and ``i + 1``.
"""

from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """What a launch is for."""

    ENDS = "ends"
    SEARCH = "search"
    CONFIRM = "confirm"


class Answer(StrEnum):
    """How a bisect ended."""

    CONFIRMED = "confirmed"
    """One step, proven on fresh launches of its two neighbours."""
    RANGE = "range"
    """Steps that only broken builds separate, proven on fresh launches of the pair around them."""
    NOT_REPRODUCED = "not_reproduced"
    """The bad end is not worse than the good end by what was asked for."""
    INCONCLUSIVE = "inconclusive"
    """The launches that were allowed did not decide it."""


@dataclass(frozen=True)
class Aim:
    """What is asked.

    ``metric`` is the metric's label, for sentences. ``smallest`` is the smallest relative change that matters (0.02:
    two percent), ``confidence`` the probability at which a claim is made, ``max_launches`` the bound on launches of all
    phases together, and ``confirm_blocks`` how many blocks of A B B A prove the finding.
    """

    lower_better: bool
    metric: str = "the metric"
    smallest: float = 0.02
    confidence: float = 0.95
    max_launches: int = 40
    confirm_blocks: int = 2


@dataclass(frozen=True)
class Outcome:
    """One launch that ended. ``value`` is in the metric's own unit; None is a launch without a usable value.

    ``block`` and ``position`` are those of its job, ``slot`` names where it ran.
    """

    version: int
    value: float | None
    phase: Phase
    block: int
    position: int
    slot: str


@dataclass(frozen=True)
class Pending:
    """One launch that was ordered and has not ended."""

    version: int
    phase: Phase
    block: int


@dataclass(frozen=True)
class Evidence:
    """Everything a decision is made from.

    ``names`` are the lineup's, from good to bad; ``outcomes`` come in order of time; ``broken`` builds can't be
    launched; ``free_slots`` is how many launches may be ordered now; ``cost_s`` is the mean time that a launch took.
    """

    names: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    pending: tuple[Pending, ...]
    broken: frozenset[int]
    free_slots: int
    aim: Aim
    cost_s: float | None = None
    next_block: int = 0


@dataclass(frozen=True)
class Order:
    """Launches to make, in this order on one slot, as one block. ``bits``: what a probe is expected to tell."""

    phase: Phase
    versions: tuple[int, ...]
    reason: str
    bits: float | None = None


@dataclass(frozen=True)
class Picture:
    """The posterior: P(nothing changed for the worse), and of each step that it is the one that brought most of it.

    ``none`` and ``steps`` sum to 1 within 1e-9. Where two changes are likely, each hypothesis gives its whole
    probability to the larger of the two, in the direction that is asked about (service.domain.posterior).
    """

    none: float
    steps: tuple[float, ...]


@dataclass(frozen=True)
class Forecast:
    """How many launches are still to come until the finding, those that are pending included: 10 %, mean, 90 %."""

    launches_low: float
    launches: float
    launches_high: float


@dataclass(frozen=True)
class Finding:
    """A bisect's answer.

    ``last_good`` and ``first_bad`` are the neighbours that were compared; ``candidates`` the steps between them, more
    than one when only broken builds separate them, or, with an inconclusive answer, the steps that hold the confidence.
    ``ratio``, ``low`` and ``high`` are bad over good of the two neighbours, from the confirmation launches alone;
    ``confidence`` is the posterior that the change lies among the candidates, before confirmation. ``ends_*`` are bad
    over good of the two ends, from the launches of the first phase. ``skipped`` builds could not be measured.
    ``launches`` counts by phase those that ended, usable or not.
    """

    answer: Answer
    last_good: int | None
    first_bad: int | None
    candidates: tuple[int, ...]
    ratio: float | None
    low: float | None
    high: float | None
    confidence: float | None
    ends_ratio: float | None
    ends_low: float | None
    ends_high: float | None
    skipped: tuple[int, ...]
    launches: dict[Phase, int]
    sentence: str


@dataclass(frozen=True)
class Decision:
    """What to do next: orders (maybe none: wait for what is pending), or a finding, and why.

    ``phase`` is None when and only when there is a finding.
    """

    phase: Phase | None
    orders: tuple[Order, ...]
    finding: Finding | None
    picture: Picture
    forecast: Forecast
    sentence: str
