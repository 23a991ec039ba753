"""Asking for a comparison: it becomes jobs."""

import hashlib
from datetime import datetime

from service.actions import catalog as known
from service.actions.context import Caller, Context
from service.actions.requests import get_request
from service.actions.views import BuildView, RequestView
from service.contract import canonical
from service.contract.cells import Cell
from service.contract.errors import Conflict, InvalidInput, UnknownMetric
from service.contract.ids import new_id
from service.contract.requests import ComparisonRequest
from service.domain import recipes
from service.domain.states import JobState, RequestState
from service.ruler import RULER_VERSION
from service.ruler.metrics import METRICS
from service.store import catalog, events, guards, requests
from service.store.engine import Session
from service.store.tables import CellRow, Job, RequestRow

SIDES = (("base", "head", "head", "base"), ("head", "base", "base", "head"))
"""The order in even and in odd blocks. Within a block what drifts linearly in time cancels out; between two blocks that
run side by side on one machine, what disturbs both at once hits one build in the one and the other in the other."""


def submit_comparison(
    ctx: Context, caller: Caller, request: ComparisonRequest, idempotency_key: str | None = None
) -> RequestView:
    """Turn a comparison into ``4 * blocks`` jobs, the first of each block queued, and return it.

    The same ``idempotency_key`` from the same caller returns the same request; with another body it is a Conflict.
    Raises UnknownBuild, UnknownRecipe, UnknownWorkload, UnknownMetric, and InvalidInput for a pair that is one build
    or a recipe that can't serve one of them. Nothing is stored unless everything is.
    """
    metric = metric_name(request.metric)
    recipe = known.find_recipe(ctx, request.recipe)
    workload = known.find_workload(ctx, request.workload)
    base = known.find_build(ctx, request.base, recipe.recipe.build_kind)
    head = known.find_build(ctx, request.head, recipe.recipe.build_kind)
    if base.id == head.id:
        raise InvalidInput(f"base and head are the same build ({base.name}): there is nothing to compare.")
    for build in (base, head):
        recipes.resolve(recipe.recipe, build.version)
    cell = Cell(
        recipe=recipe.recipe,
        workload=workload.workload,
        hardware=request.hardware or recipe.recipe.hardware,
        ruler_version=RULER_VERSION,
    )
    asked = canonical.digest(request.model_dump(mode="json"))
    request_id = new_id("req")
    row = RequestRow(
        id=request_id,
        kind=request.kind,
        state=RequestState.OPEN,
        submitter=caller.name,
        cell_digest=cell.digest,
        body={
            **request.model_dump(mode="json"),
            "base_id": base.id,
            "head_id": head.id,
            "recipe": recipe.name,
            "workload": workload.name,
            "metric": metric,
            "seed": _fresh_seed(request_id) if request.seed is None else request.seed,
            "asked": asked,
        },
        idempotency_key=None if idempotency_key is None else f"{caller.name}:{idempotency_key}",
        created_at=ctx.clock.now(),
    )
    with ctx.store.write() as session:
        _store_cell(session, cell, recipe.id, workload.id, row.created_at)
        if catalog.insert_if_absent(session, row):
            events.record(session, row.created_at, "request", row.id, "submitted", row.id, by=caller.name)
            jobs = _jobs(row, cell, {"base": base, "head": head})
            guards.insert(session, *jobs)
            for job in jobs:
                events.record(session, row.created_at, "job", job.id, job.state, row.id, build_id=job.build_id)
        else:
            row = _same(session, row, asked)
    return get_request(ctx, row.id)


def metric_name(name: str) -> str:
    """Return a metric's full name for a name with or without its unit (``tpot_p50`` is ``tpot_p50_ms``).

    Raises UnknownMetric, naming those that can be compared: counts, of which neither more nor less is better, can't.
    """
    known = [metric for metric, info in METRICS.items() if info.direction != "neither"]
    for candidate in (name, f"{name}_ms", f"{name}_s"):
        if candidate in known:
            return candidate
    raise UnknownMetric(f"There is no metric {name!r} to compare by. There are: {', '.join(known)}.", allowed=known)


def job_seed(seed: int, block: int, position: int) -> int:
    """Return the seed of one launch, 0 <= seed < 2**31: spread by a hash, so that no two launches share their noise."""
    found = hashlib.sha256(f"{seed}:{block}:{position}".encode()).digest()
    return int.from_bytes(found[:4], "big") >> 1


def _fresh_seed(request_id: str) -> int:
    """Launches of two requests must not share their noise: they would count as more evidence than they are."""
    return int.from_bytes(hashlib.sha256(request_id.encode()).digest()[:4], "big") >> 1


def _jobs(row: RequestRow, cell: Cell, builds: dict[str, BuildView]) -> list[Job]:
    return [
        Job(
            id=new_id("job"),
            request_id=row.id,
            build_id=builds[side].id,
            cell_digest=row.cell_digest,
            hardware=cell.hardware,
            build_kind=cell.recipe.build_kind,
            block=block,
            position=position,
            seed=job_seed(row.body["seed"], block, position),
            state=JobState.QUEUED if position == 0 else JobState.WAITING,
            priority=row.body["priority"],
            created_at=row.created_at,
        )
        for block in range(row.body["blocks"])
        for position, side in enumerate(SIDES[block % 2])
    ]


def _store_cell(session: Session, cell: Cell, recipe_id: str, workload_id: str, at: datetime) -> None:
    catalog.insert_if_absent(
        session,
        CellRow(
            digest=cell.digest,
            recipe_id=recipe_id,
            workload_id=workload_id,
            hardware=cell.hardware,
            ruler_version=cell.ruler_version,
            body=cell.model_dump(mode="json"),
            created_at=at,
        ),
    )


def _same(session: Session, row: RequestRow, asked: str) -> RequestRow:
    """The request that this key made before."""
    earlier = requests.by_key(session, row.idempotency_key or "")
    if earlier is None:
        raise Conflict("The request could not be stored; send it again.")
    if earlier.body["asked"] != asked:
        raise Conflict(f"This idempotency key was used for another request ({earlier.id}).", request_id=earlier.id)
    return earlier
