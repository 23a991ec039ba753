"""What a person or a program asks for. POST /api/v1/requests takes it; ``kind`` says which of them it is."""

from typing import Annotated, Literal

from pydantic import Field

from service.contract.builds import Name, Wire

NameOrId = Annotated[str, Field(min_length=1, max_length=100)]
"""The name of a build, recipe or workload, or the id that its registration was given."""

LAUNCHES_PER_BLOCK = 4
"""One block is base, head, head, base on one slot, every second one mirrored: what drifts linearly in time cancels out,
and what disturbs two blocks at once does not favour one build."""


class ComparisonRequest(Wire):
    """Measure two builds against each other: ``4 * blocks`` launches in one cell.

    Each block launches base, head, head, base (every second one head, base, base, head), in that order and on one slot;
    blocks run in parallel where slots are free. ``hardware`` left out is the recipe's. ``metric`` is what the verdict
    is about; all metrics are measured. ``seed`` seeds the noise of simulated engines and nothing else; left out, every
    request draws its own. A higher ``priority`` is served first. ``gsm8k`` asks for the accuracy of both builds, once
    each.
    """

    kind: Literal["comparison"] = "comparison"
    base: NameOrId
    head: NameOrId
    recipe: NameOrId
    workload: NameOrId
    hardware: Name | None = None
    blocks: int = Field(default=2, ge=1, le=50)
    seed: int | None = Field(default=None, ge=0, lt=2**31)
    metric: str = Field(default="tpot_p50_ms", min_length=1, max_length=60)
    priority: int = Field(default=0, ge=-100, le=100)
    gsm8k: bool = False


class BisectRequest(Wire):
    """Find between which two neighbours of a lineup a metric became worse, and prove it.

    ``good`` and ``bad`` are the ends. ``lineup`` left out is every registered build of the recipe's kind between them,
    by version, the newest registration of each name; given, it is taken in its order. ``metric`` is a metric of the
    ruler or ``gsm8k``, which is accuracy. ``smallest`` is the smallest change that matters, as a fraction.
    ``confidence`` is how likely a step must be before it is put to the proof. ``gsm8k`` asks for the accuracy of
    every build that is launched, once. ``seed`` seeds the noise of simulated engines; left out, every bisect draws
    its own. Its launches
    have a low ``priority``, so that what a person asks for is served first.
    """

    kind: Literal["bisect"] = "bisect"
    good: NameOrId
    bad: NameOrId
    recipe: NameOrId
    workload: NameOrId
    hardware: Name | None = None
    metric: str = Field(default="tpot_p50_ms", min_length=1, max_length=60)
    lineup: list[NameOrId] | None = Field(default=None, min_length=2, max_length=400)
    smallest: float = Field(default=0.02, gt=0, le=0.5)
    confidence: float = Field(default=0.95, ge=0.5, le=0.999)
    max_launches: int = Field(default=40, ge=4, le=1000)
    gsm8k: bool = False
    seed: int | None = Field(default=None, ge=0, lt=2**31)
    priority: int = Field(default=-10, ge=-100, le=100)
