"""Bisects: ask for one, look at it, hold it, let it go on, take it back. What it does next is service.actions.plan."""

from datetime import datetime
from typing import Any

from service.actions import cancel, catalog, plan, submit
from service.actions.bisect_pictures import bisect_summaries, bisect_view, step_views
from service.actions.bisect_views import BisectSummary, BisectView, StepView
from service.actions.context import Caller, Context
from service.actions.situation import ACCURACY
from service.actions.views import BuildView, RecipeView
from service.contract.errors import Conflict, NotFound
from service.contract.ids import new_id
from service.contract.requests import BisectRequest
from service.domain import lineup, recipes
from service.domain.states import BISECT, BisectState, is_final
from service.ruler.metrics import METRICS
from service.store import bisects, events, guards
from service.store import catalog as stored_catalog
from service.store.engine import Session
from service.store.tables import Bisect, RequestRow

CONFIRM_BLOCKS = 2


def start_bisect(
    ctx: Context, caller: Caller, request: BisectRequest, idempotency_key: str | None = None
) -> BisectView:
    """Store a bisect and its request, and return it; its planner orders the first launches.

    The same ``idempotency_key`` from the same caller returns the same bisect; with another body it is a Conflict.
    Raises UnknownBuild, UnknownRecipe, UnknownWorkload, UnknownMetric, and InvalidInput for a lineup that can't be
    searched or a recipe that can't serve one of its builds. Nothing is stored unless everything is.
    """
    metric = metric_name(request.metric)
    wanted = submit.find_wanted(ctx, request, request.good, request.bad)
    nodes = _lineup(ctx, request, wanted.recipe, wanted.base, wanted.head)
    gsm8k = request.gsm8k or metric == ACCURACY
    row = submit.new_row(ctx, caller, wanted, metric, idempotency_key, blocks=0, gsm8k=gsm8k)
    now = row.created_at
    with ctx.store.write() as session:
        submit.store_cell(session, wanted, now)
        if stored_catalog.insert_if_absent(session, row):
            events.record(session, now, "request", row.id, "submitted", row.id, by=caller.name)
            bisect_id = _store(session, now, row, request, metric, nodes)
        else:
            earlier = bisects.of_request(session, submit.same_request(session, row).id)
            if earlier is None:
                raise Conflict("This idempotency key was used for a request of another kind.")
            bisect_id = earlier.id
    return get_bisect(ctx, bisect_id)


def get_bisect(ctx: Context, bisect_id: str) -> BisectView:
    """Return a bisect with its lineup, steps, finding and jobs; raises NotFound. Also found by its request's id."""
    with ctx.store.read() as session:
        return bisect_view(session, _found(session, bisect_id), ctx.clock.now())


def list_bisects(ctx: Context, limit: int = 50, before: str | None = None) -> list[BisectSummary]:
    """Return up to ``limit`` (1 to 200) bisects, newest first, from the one after ``before`` (an id) on.

    Raises NotFound if ``before`` is no bisect.
    """
    with ctx.store.read() as session:
        last = _found(session, before) if before else None
        return bisect_summaries(session, bisects.newest(session, max(1, min(limit, 200)), last), ctx.clock.now())


def list_steps(ctx: Context, bisect_id: str) -> list[StepView]:
    """Return a bisect's steps in their order; raises NotFound."""
    with ctx.store.read() as session:
        row = _found(session, bisect_id)
        return step_views(session, row)


def replay_steps(ctx: Context, bisect_id: str) -> list[int]:
    """Decide every step again from its stored evidence; return the numbers of those that come out differently.

    Empty unless the engine has changed since. Raises NotFound.
    """
    with ctx.store.read() as session:
        steps = bisects.steps(session, _found(session, bisect_id).id)
    return [step.number for step in steps if not plan.is_replayed(step)]


def pause_bisect(ctx: Context, caller: Caller, bisect_id: str) -> BisectView:
    """Hold a bisect: what runs finishes, and nothing else of it is handed out or ordered. Again changes nothing.

    Raises NotFound, and Conflict for one that has ended.
    """
    return _hold(ctx, caller, bisect_id, on=True)


def resume_bisect(ctx: Context, caller: Caller, bisect_id: str) -> BisectView:
    """Let a bisect go on from where it was held. Again changes nothing. Raises as pause_bisect does."""
    return _hold(ctx, caller, bisect_id, on=False)


def cancel_bisect(ctx: Context, caller: Caller, bisect_id: str) -> BisectView:
    """End a bisect without an answer: nothing more is ordered, what runs is told at its next renewal to stop.

    Cancelling it again changes nothing. What was measured stays. Raises NotFound, and Conflict for one that has ended
    otherwise.
    """
    with ctx.store.read() as session:
        row = _found(session, bisect_id)
    if row.state in (BisectState.ENDED, BisectState.FAILED):
        raise Conflict(f"The bisect is over already: it has {_ended(row)}.")
    cancel.cancel_request(ctx, caller, row.request_id)
    return get_bisect(ctx, bisect_id)


def metric_name(name: str) -> str:
    """Return the full name of what a bisect may search by: a metric with a better direction, or ``gsm8k``.

    Raises UnknownMetric, naming them.
    """
    return ACCURACY if name == ACCURACY else submit.metric_name(name, also=(ACCURACY,))


def _lineup(
    ctx: Context, request: BisectRequest, recipe: RecipeView, good: BuildView, bad: BuildView
) -> list[dict[str, Any]]:
    """The nodes in order, each with its name and the ids of its builds (several where their sources are equal)."""
    kind = recipe.recipe.build_kind
    named: dict[str, BuildView] = {}
    if request.lineup is None:
        for build in catalog.list_builds(ctx):  # newest first: the newest registration is what a name means
            if build.kind is kind:
                named.setdefault(build.name, build)
        named |= {good.name: good, bad.name: bad}
        found = lineup.between([_registered(build) for build in named.values()], good.name, bad.name)
    else:
        given = [catalog.find_build(ctx, name, kind) for name in request.lineup]
        named = {build.name: build for build in given}
        found = lineup.given([_registered(build) for build in given], good.name, bad.name)
    for node in found.nodes:
        for one in node.builds:
            recipes.resolve(recipe.recipe, one.version)
    return [{"name": node.name, "build_ids": [named[one.name].id for one in node.builds]} for node in found.nodes]


def _registered(build: BuildView) -> lineup.Registered:
    return lineup.Registered(build.name, build.version, build.source_digest, build.dated_at)


def _store(
    session: Session, at: datetime, row: RequestRow, request: BisectRequest, metric: str, nodes: list[dict[str, Any]]
) -> str:
    bisect = Bisect(
        id=new_id("bis"),
        request_id=row.id,
        state=BisectState.CREATED,
        metric=metric,
        aim={
            "lower_better": metric != ACCURACY and METRICS[metric].direction == "lower_better",
            "metric": ACCURACY if metric == ACCURACY else METRICS[metric].label,
            "smallest": request.smallest,
            "confidence": request.confidence,
            "max_launches": request.max_launches,
            "confirm_blocks": CONFIRM_BLOCKS,
            ACCURACY: row.body["gsm8k"],
        },
        lineup=nodes,
        created_at=at,
    )
    guards.insert(session, bisect)
    names = [node["name"] for node in nodes]
    events.record(session, at, "bisect", bisect.id, "created", row.id, lineup=names, metric=metric, by=row.submitter)
    return bisect.id


def _hold(ctx: Context, caller: Caller, bisect_id: str, *, on: bool) -> BisectView:
    now = ctx.clock.now()
    with ctx.store.write() as session:
        row = _found(session, bisect_id)
        if not bisects.pause(session, now, row, on, caller.name):
            row = guards.fresh(session, Bisect, row.id) or row
            if is_final(BISECT, row.state):
                raise Conflict(f"The bisect is over already: it has {_ended(row)}.")
    return get_bisect(ctx, bisect_id)


def _ended(row: Bisect) -> str:
    return f"been {row.state}" if row.state is BisectState.CANCELLED else str(row.state)


def _found(session: Session, bisect_id: str) -> Bisect:
    row = guards.fresh(session, Bisect, bisect_id) or bisects.of_request(session, bisect_id)
    if row is None:
        raise NotFound(f"There is no bisect {bisect_id!r}.")
    return row
