"""The runner protocol: /api/v1/agent. docs/protocol.md is the prose; the messages are in service.contract."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from service.actions import attempts, enrol, lease
from service.actions.context import Context
from service.api.problems import RESPONSES
from service.contract.builds import Sha256
from service.contract.lease import (
    Enrolment,
    EnrolRequest,
    Heartbeat,
    HeartbeatAnswer,
    Lease,
    LeaseRequest,
    LogAnswer,
    Release,
    Renewal,
    RenewalAnswer,
)
from service.contract.upload import Result, ResultAnswer
from service.security import Ctx, EnrolmentBearer, RunnerId, attempt_only

POLL_S = 0.25
"""How often a held lease call looks for work, for a client that hung up, and for the controller's end."""

router = APIRouter(prefix="/api/v1/agent", tags=["agent"], responses=RESPONSES)
attempt_router = APIRouter(prefix="/attempts/{attempt_id}", dependencies=[Depends(attempt_only)])

FileName = Annotated[str, Query(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
Fence = Annotated[int, Query(ge=0, lt=2**31, description="The lease's fence.")]


@router.post("/enrol")
def enrol_runner(ctx: Ctx, token: EnrolmentBearer, body: EnrolRequest) -> Enrolment:
    """Turn a single-use enrolment token into a runner with a token of its own."""
    return enrol.enrol(ctx, token, body)


@router.post("/heartbeat")
def heartbeat(ctx: Ctx, runner_id: RunnerId, body: Heartbeat) -> HeartbeatAnswer:
    """Say that the runner lives, and learn what it is to do."""
    return enrol.heartbeat(ctx, runner_id, body)


@router.post("/lease", response_model=Lease, responses={204: {"description": "No work came in time; ask again."}})
async def lease_work(request: Request, ctx: Ctx, runner_id: RunnerId, body: LeaseRequest) -> Lease | Response:
    """Hold the call until there is work for the slot, at most ``wait_s``; the same request_id gets the same lease."""
    found = await _poll(request, ctx, runner_id, body)
    return Response(status_code=204) if found is None else found


async def _poll(request: Request, ctx: Context, runner_id: str, body: LeaseRequest) -> Lease | None:
    until = ctx.clock.monotonic_s() + body.wait_s
    while True:
        found = await asyncio.to_thread(lease.try_lease, ctx, runner_id, body)
        left = until - ctx.clock.monotonic_s()
        if found is not None or left <= 0:
            return found
        # A lease made for somebody who hung up would stand idle until it expires: look before every try.
        await asyncio.sleep(min(POLL_S, left))
        if request.app.state.stopping.is_set() or await request.is_disconnected():
            return None


@attempt_router.post("/renew")
def renew(ctx: Ctx, attempt_id: str, body: Renewal) -> RenewalAnswer:
    """Extend the lease and report what the attempt is doing."""
    return attempts.renew(ctx, attempt_id, body)


@attempt_router.patch("/log", openapi_extra={"requestBody": {"content": {"application/octet-stream": {}}}})
async def append_log(
    request: Request, ctx: Ctx, attempt_id: str, fence: Fence, offset: Annotated[int, Query(ge=0, lt=2**62)]
) -> LogAnswer:
    """Append bytes to the attempt's log at ``offset``."""
    data = await request.body()
    return await asyncio.to_thread(attempts.append_log, ctx, attempt_id, fence, offset, data)


@attempt_router.put(
    "/artifacts/{sha256}", status_code=204, openapi_extra={"requestBody": {"content": {"application/octet-stream": {}}}}
)
async def put_artifact(
    request: Request, ctx: Ctx, attempt_id: str, sha256: Sha256, fence: Fence, name: FileName
) -> None:
    """Store a file of the attempt under its hash; the same file again changes nothing."""
    data = await request.body()
    await asyncio.to_thread(attempts.put_artifact, ctx, attempt_id, fence, name, sha256, data)


@attempt_router.put("/result")
def put_result(ctx: Ctx, attempt_id: str, body: Result) -> ResultAnswer:
    """Hand in the attempt's one result; the same bytes again are a replay."""
    return attempts.put_result(ctx, attempt_id, body)


@attempt_router.post("/release", status_code=204)
def release(ctx: Ctx, attempt_id: str, body: Release) -> None:
    """Give the attempt back without burning it."""
    attempts.release(ctx, attempt_id, body)


router.include_router(attempt_router)
