"""What is stored about two builds: /api/v1/compare/{base}...{head}."""

from typing import Annotated

from fastapi import APIRouter, Query

from service.actions import compare
from service.actions.comparison_views import ComparisonView
from service.api.problems import RESPONSES
from service.security import Ctx

router = APIRouter(prefix="/api/v1", tags=["compare"], responses=RESPONSES)


@router.get("/compare/{base}...{head}")
def compare_builds(
    ctx: Ctx,
    base: str,
    head: str,
    metric: Annotated[str, Query(description="What the verdict is about; GET /api/v1/metrics names them.")] = (
        "tpot_p50_ms"
    ),
    cell: Annotated[str | None, Query(description="Digest of a cell; the newest shared one if left out.")] = None,
    recipe: Annotated[str | None, Query(description="Name or id.")] = None,
    workload: Annotated[str | None, Query(description="Name or id.")] = None,
    request: Annotated[str | None, Query(description="Only the launches of the request of this id.")] = None,
) -> ComparisonView:
    """Compare two builds, by names or ids, from every valid launch of theirs in one cell."""
    return compare.compare_builds(
        ctx, base, head, metric=metric, cell=cell, recipe=recipe, workload=workload, request_id=request
    )
