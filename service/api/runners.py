"""Runners, for people: /api/v1/runners. What runners call themselves is in ``agent``."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from service.actions import enrol
from service.actions.views import EnrolmentTokenView, RunnerView
from service.api.problems import RESPONSES
from service.contract.builds import Wire
from service.security import Ctx, Operator

router = APIRouter(prefix="/api/v1/runners", tags=["runners"], responses=RESPONSES)


class EnrolmentTokenRequest(Wire):
    """How long the token may wait to be used."""

    ttl_s: Annotated[float, Field(ge=1, le=7 * 24 * 3600)] = 3600


class DrainRequest(Wire):
    """``on`` false takes a drain back."""

    on: bool = True


@router.get("")
def list_runners(ctx: Ctx) -> list[RunnerView]:
    """Every runner with its slots."""
    return enrol.list_runners(ctx)


@router.post("/enrolment-tokens", status_code=201)
def create_enrolment_token(
    ctx: Ctx, caller: Operator, body: EnrolmentTokenRequest = EnrolmentTokenRequest()
) -> EnrolmentTokenView:
    """Make a token with which one runner can enrol, once. It is shown this once."""
    return enrol.create_enrolment_token(ctx, caller, ttl_s=body.ttl_s)


@router.post("/{runner_id}/drain")
def drain_runner(ctx: Ctx, caller: Operator, runner_id: str, body: DrainRequest = DrainRequest()) -> RunnerView:
    """Let the runner finish what it does and take nothing new; or, with ``on`` false, let it work again."""
    return enrol.drain_runner(ctx, caller, runner_id, body.on)


@router.post("/{runner_id}/revoke")
def revoke_runner(ctx: Ctx, caller: Operator, runner_id: str) -> RunnerView:
    """Take the runner's token away, for good; its attempts expire and their jobs are queued again."""
    return enrol.revoke_runner(ctx, caller, runner_id)
