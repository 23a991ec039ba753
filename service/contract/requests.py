"""What a person or a program asks for. POST /api/v1/requests takes it; ``kind`` says which of them it is."""

from typing import Annotated, Literal

from pydantic import Field

from service.contract.builds import Name, Wire

NameOrId = Annotated[str, Field(min_length=1, max_length=100)]
"""The name of a build, recipe or workload, or the id that its registration was given."""

LAUNCHES_PER_BLOCK = 4
"""One block is base, head, head, base on one slot: a drift that is linear in time cancels out."""


class ComparisonRequest(Wire):
    """Measure two builds against each other: ``4 * blocks`` launches in one cell.

    Each block launches base, head, head, base, in that order and on one slot; blocks run in parallel where slots are
    free. ``hardware`` left out is the recipe's. ``metric`` is what the verdict is about; all metrics are measured.
    ``seed`` seeds the noise of simulated engines and nothing else. A higher ``priority`` is served first.
    """

    kind: Literal["comparison"] = "comparison"
    base: NameOrId
    head: NameOrId
    recipe: NameOrId
    workload: NameOrId
    hardware: Name | None = None
    blocks: int = Field(default=2, ge=1, le=50)
    seed: int = Field(default=0, ge=0, lt=2**31)
    metric: str = Field(default="tpot_p50_ms", min_length=1, max_length=60)
    priority: int = Field(default=0, ge=-100, le=100)
