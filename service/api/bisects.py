"""Bisects: /api/v1/bisects."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from service.actions import bisect, bisect_report
from service.actions.bisect_views import BisectSummary, BisectView, StepView
from service.api.problems import RESPONSES
from service.api.requests import IdempotencyKey
from service.contract.requests import BisectRequest
from service.security import Ctx, Submitter

router = APIRouter(prefix="/api/v1", tags=["bisects"], responses=RESPONSES)


@router.post("/bisects", status_code=201)
def start_bisect(
    ctx: Ctx, caller: Submitter, body: BisectRequest, response: Response, idempotency_key: IdempotencyKey = None
) -> BisectView:
    """Find the step that made a metric worse: the planner orders launches one by one until it is proven."""
    view = bisect.start_bisect(ctx, caller, body, idempotency_key)
    response.headers["Location"] = f"/api/v1/bisects/{view.id}"
    return view


@router.get("/bisects")
def list_bisects(
    ctx: Ctx,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: Annotated[str | None, Query(description="Only bisects older than the one of this id.")] = None,
) -> list[BisectSummary]:
    """Bisects, newest first."""
    return bisect.list_bisects(ctx, limit=limit, before=before)


@router.get("/bisects/{bisect_id}")
def get_bisect(ctx: Ctx, bisect_id: str) -> BisectView:
    """One bisect: its lineup with what was measured, its steps with their reasons, the posterior, the finding."""
    return bisect.get_bisect(ctx, bisect_id)


@router.get("/bisects/{bisect_id}/steps")
def list_steps(ctx: Ctx, bisect_id: str) -> list[StepView]:
    """Every decision of the planner, in order: what it knew, what it ordered, and why."""
    return bisect.list_steps(ctx, bisect_id)


@router.get(
    "/bisects/{bisect_id}/report",
    response_class=Response,
    responses={200: {"content": {"text/markdown": {}}, "description": "Markdown, fit for a GitHub issue."}},
)
def get_report(ctx: Ctx, request: Request, bisect_id: str) -> Response:
    """The bisect as a report, as far as it is."""
    text = bisect_report.write_report(ctx, bisect_id, str(request.base_url).rstrip("/"))
    headers = {"X-Content-Type-Options": "nosniff"}
    return Response(text, media_type="text/markdown; charset=utf-8", headers=headers)


@router.post("/bisects/{bisect_id}/pause")
def pause_bisect(ctx: Ctx, caller: Submitter, bisect_id: str) -> BisectView:
    """Hold it: what runs finishes, nothing else of it is handed out or ordered."""
    return bisect.pause_bisect(ctx, caller, bisect_id)


@router.post("/bisects/{bisect_id}/resume")
def resume_bisect(ctx: Ctx, caller: Submitter, bisect_id: str) -> BisectView:
    """Let it go on from where it was held."""
    return bisect.resume_bisect(ctx, caller, bisect_id)


@router.post("/bisects/{bisect_id}/cancel")
def cancel_bisect(ctx: Ctx, caller: Submitter, bisect_id: str) -> BisectView:
    """End it without an answer. What was measured stays."""
    return bisect.cancel_bisect(ctx, caller, bisect_id)
