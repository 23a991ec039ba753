"""Asking for a comparison: it becomes jobs."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from service.actions import catalog as known
from service.actions.context import Caller, Context
from service.actions.requests import get_request
from service.actions.views import BuildView, RecipeView, RequestView, WorkloadView
from service.contract import canonical
from service.contract.cells import Cell
from service.contract.errors import Conflict, InvalidInput, UnknownMetric
from service.contract.ids import new_id
from service.contract.requests import BisectRequest, ComparisonRequest
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
    wanted = find_wanted(ctx, request, request.base, request.head)
    base, head = wanted.base, wanted.head
    if base.id == head.id:
        raise InvalidInput(f"base and head are the same build ({base.name}): there is nothing to compare.")
    for build in (base, head):
        recipes.resolve(wanted.recipe.recipe, build.version)
    row = new_row(ctx, caller, wanted, metric_name(request.metric), idempotency_key)
    with ctx.store.write() as session:
        store_cell(session, wanted, row.created_at)
        if catalog.insert_if_absent(session, row):
            events.record(session, row.created_at, "request", row.id, "submitted", row.id, by=caller.name)
            jobs = _jobs(row, wanted.cell, {"base": base, "head": head})
            guards.insert(session, *jobs)
            for job in jobs:
                events.record(session, row.created_at, "job", job.id, job.state, row.id, build_id=job.build_id)
        else:
            row = same_request(session, row)
    return get_request(ctx, row.id)


def metric_name(name: str, also: Sequence[str] = ()) -> str:
    """Return a metric's full name for a name with or without its unit (``tpot_p50`` is ``tpot_p50_ms``).

    Raises UnknownMetric, naming those that can be compared, and ``also`` others that the caller takes: counts, of which
    neither more nor less is better, can't be compared.
    """
    known = [metric for metric, info in METRICS.items() if info.direction != "neither"]
    for candidate in (name, f"{name}_ms", f"{name}_s"):
        if candidate in known:
            return candidate
    allowed = [*known, *also]
    raise UnknownMetric(f"There is no metric {name!r} to compare by. There are: {', '.join(allowed)}.", allowed=allowed)


def job_seed(seed: int, block: int, position: int) -> int:
    """Return the seed of one launch, 0 <= seed < 2**31: spread by a hash, so that no two launches share their noise."""
    found = hashlib.sha256(f"{seed}:{block}:{position}".encode()).digest()
    return int.from_bytes(found[:4], "big") >> 1


def fresh_seed(request_id: str) -> int:
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
            evaluate=row.body["gsm8k"] and block == 0 and position < 2,  # once each: base, head
            state=JobState.QUEUED if position == 0 else JobState.WAITING,
            priority=row.body["priority"],
            created_at=row.created_at,
        )
        for block in range(row.body["blocks"])
        for position, side in enumerate(SIDES[block % 2])
    ]


@dataclass(frozen=True)
class Wanted:
    """What a request names, found: a comparison's two builds or a bisect's two ends, and the cell to measure in."""

    request: ComparisonRequest | BisectRequest
    recipe: RecipeView
    workload: WorkloadView
    base: BuildView
    head: BuildView
    cell: Cell


def find_wanted(ctx: Context, request: ComparisonRequest | BisectRequest, base: str, head: str) -> Wanted:
    """Find what a request names; raises UnknownRecipe, UnknownWorkload, UnknownBuild, naming those that there are."""
    recipe = known.find_recipe(ctx, request.recipe)
    workload = known.find_workload(ctx, request.workload)
    kind = recipe.recipe.build_kind
    cell = Cell(
        recipe=recipe.recipe,
        workload=workload.workload,
        hardware=request.hardware or recipe.recipe.hardware,
        ruler_version=RULER_VERSION,
    )
    return Wanted(request, recipe, workload, known.find_build(ctx, base, kind), known.find_build(ctx, head, kind), cell)


def new_row(
    ctx: Context, caller: Caller, wanted: Wanted, metric: str, idempotency_key: str | None, **body: Any
) -> RequestRow:
    """Return a request's row, to be stored: what was asked for, with names and seed filled in."""
    request = wanted.request
    asked = request.model_dump(mode="json")
    request_id = new_id("req")
    return RequestRow(
        id=request_id,
        kind=request.kind,
        state=RequestState.OPEN,
        submitter=caller.name,
        cell_digest=wanted.cell.digest,
        body={
            **asked,
            "base_id": wanted.base.id,
            "head_id": wanted.head.id,
            "recipe": wanted.recipe.name,
            "workload": wanted.workload.name,
            "metric": metric,
            "seed": fresh_seed(request_id) if request.seed is None else request.seed,
            "asked": canonical.digest(asked),
            **body,
        },
        idempotency_key=None if idempotency_key is None else f"{caller.name}:{idempotency_key}",
        created_at=ctx.clock.now(),
    )


def store_cell(session: Session, wanted: Wanted, at: datetime) -> None:
    """Store a request's cell unless it is there."""
    catalog.insert_if_absent(
        session,
        CellRow(
            digest=wanted.cell.digest,
            recipe_id=wanted.recipe.id,
            workload_id=wanted.workload.id,
            hardware=wanted.cell.hardware,
            ruler_version=wanted.cell.ruler_version,
            body=wanted.cell.model_dump(mode="json"),
            created_at=at,
        ),
    )


def same_request(session: Session, row: RequestRow) -> RequestRow:
    """Return the request that this key made before; raises Conflict if that asked for something else."""
    earlier = requests.by_key(session, row.idempotency_key or "")
    if earlier is None:
        raise Conflict("The request could not be stored; send it again.")
    if earlier.body["asked"] != row.body["asked"]:
        raise Conflict(f"This idempotency key was used for another request ({earlier.id}).", request_id=earlier.id)
    return earlier
