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
    blocks run in parallel where slots are
    free. ``hardware`` left out is the recipe's. ``metric`` is what the verdict is about; all metrics are measured.
    ``seed`` seeds the noise of simulated engines and nothing else; left
    out, every request draws its own. A higher ``priority`` is served first.
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
