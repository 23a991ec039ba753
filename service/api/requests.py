"""Requests and their jobs: /api/v1/requests, /api/v1/jobs."""

from typing import Annotated

from fastapi import APIRouter, Header, Query, Response

from service.actions import attempts, cancel, compare, requests, submit
from service.actions.comparison_views import ComparisonView
from service.actions.views import JobView, RequestSummary, RequestView
from service.api.problems import RESPONSES
from service.contract.requests import ComparisonRequest
from service.security import Ctx, Submitter

router = APIRouter(prefix="/api/v1", tags=["requests"], responses=RESPONSES)

IdempotencyKey = Annotated[
    str | None,
    Header(min_length=1, max_length=200, description="The same key and body again answers the same request."),
]


@router.post("/requests", status_code=201)
def submit_request(
    ctx: Ctx, caller: Submitter, body: ComparisonRequest, response: Response, idempotency_key: IdempotencyKey = None
) -> RequestView:
    """Ask for a comparison: 4 launches per block, measured as soon as a runner that can do it has a free slot."""
    view = submit.submit_comparison(ctx, caller, body, idempotency_key)
    response.headers["Location"] = f"/api/v1/requests/{view.id}"
    return view


@router.get("/requests")
def list_requests(
    ctx: Ctx,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: Annotated[str | None, Query(description="Only requests older than the one of this id.")] = None,
) -> list[RequestSummary]:
    """Requests, newest first."""
    return list(requests.list_requests(ctx, limit=limit, before=before))


@router.get("/requests/{request_id}")
def get_request(ctx: Ctx, request_id: str) -> RequestView:
    """One request with its jobs, each with its newest attempt."""
    return requests.get_request(ctx, request_id)


@router.post("/requests/{request_id}/cancel")
def cancel_request(ctx: Ctx, caller: Submitter, request_id: str) -> RequestView:
    """Cancel what has not ended; running attempts stop at their next renewal. What was measured stays."""
    return cancel.cancel_request(ctx, caller, request_id)


@router.get("/requests/{request_id}/comparison")
def get_comparison(
    ctx: Ctx,
    request_id: str,
    metric: Annotated[str | None, Query(description="Another metric than the request's.")] = None,
) -> ComparisonView:
    """The comparison of the request's two builds, from this request's launches alone."""
    return compare.compare_request(ctx, request_id, metric)


@router.get(
    "/attempts/{attempt_id}/log",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}, "description": "The log, as the runner sent it."}},
)
def get_log(ctx: Ctx, attempt_id: str) -> Response:
    """An attempt's log, live too; of one beyond the cap the head and the tail."""
    headers = {"X-Content-Type-Options": "nosniff"}
    return Response(attempts.read_log(ctx, attempt_id), media_type="text/plain; charset=utf-8", headers=headers)


@router.get("/jobs/{job_id}")
def get_job(ctx: Ctx, job_id: str) -> JobView:
    """One job with its newest attempt."""
    return requests.get_job(ctx, job_id)
