"""Events, the registry of metrics, and whether the controller is well: /api/v1/events, /metrics, /health."""

from typing import Annotated

from fastapi import APIRouter, Query

from service import VERSION
from service.actions import events
from service.actions.views import EventView
from service.api.problems import RESPONSES
from service.contract import PROTOCOL_VERSION
from service.contract.builds import Wire
from service.ruler import RULER_VERSION
from service.ruler.metrics import METRICS
from service.security import Ctx

router = APIRouter(prefix="/api/v1", tags=["system"], responses=RESPONSES)


class MetricView(Wire):
    """One metric that launches have."""

    name: str
    unit: str
    direction: str
    label: str
    formula: str


class Health(Wire):
    """Answered only when the database could be read."""

    status: str
    version: str
    protocol_version: int
    ruler_version: int
    database: str
    demo: bool


@router.get("/events")
def list_events(
    ctx: Ctx,
    after: Annotated[int, Query(ge=0, lt=2**63, description="Only events with a larger id.")] = 0,
    request: Annotated[str | None, Query(description="Only events of this request.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> list[EventView]:
    """What happened, oldest first. Ask again with the last id that you saw: no event is missed."""
    return events.list_events(ctx, after=after, request_id=request, limit=limit)


@router.get("/metrics")
def list_metrics() -> list[MetricView]:
    """The metrics that a comparison can be about, with their formulas."""
    return [
        MetricView(name=name, unit=info.unit, direction=info.direction, label=info.label, formula=info.formula)
        for name, info in METRICS.items()
    ]


@router.get("/health")
def health(ctx: Ctx) -> Health:
    """Whether the controller can do its work."""
    events.list_events(ctx, after=0, request_id=None, limit=1)
    return Health(
        status="ok",
        version=VERSION,
        protocol_version=PROTOCOL_VERSION,
        ruler_version=RULER_VERSION,
        database=ctx.store.dialect,
        demo=ctx.settings.demo,
    )
