"""The catalog: builds, recipes and workloads by name.

Registering the same thing again is no error and makes no second row. The newest registration of a name is what the
name means from then on; what was measured before stays with what was registered then.
"""

import difflib
from typing import Any

from service.actions.context import Caller, Context
from service.actions.pictures import build_view, recipe_view, workload_view
from service.actions.views import BuildView, RecipeView, WorkloadView
from service.contract.builds import BuildKind, BuildSpec
from service.contract.errors import Conflict, NotFound, UnknownBuild, UnknownRecipe, UnknownWorkload
from service.contract.ids import new_id
from service.contract.recipes import Recipe
from service.contract.workloads import Workload
from service.store import catalog, events
from service.store.tables import BuildRow, RecipeRow, WorkloadRow


def register_build(ctx: Context, caller: Caller, spec: BuildSpec) -> BuildView:
    """Store a build, or find the same one. Raises Conflict if it was registered as another version before."""
    now = ctx.clock.now()
    row = BuildRow(
        id=new_id("bld"),
        name=spec.name,
        version=spec.version,
        kind=spec.kind,
        digest=spec.digest,
        source=spec.source.model_dump(mode="json"),
        dated_at=spec.dated_at,
        registered_at=now,
    )
    with ctx.store.write() as session:
        stored = catalog.register(session, row, {"name": row.name, "kind": row.kind, "digest": row.digest}, now)
        if stored.version != spec.version:
            raise Conflict(
                f"{spec.name} with this source is registered as version {stored.version}, not {spec.version}; "
                "a source does not change its version: register it under another name."
            )
        events.record(session, now, "build", stored.id, "registered", name=spec.name, by=caller.name)
        return build_view(stored)


def register_recipe(ctx: Context, caller: Caller, recipe: Recipe) -> RecipeView:
    """Store a recipe, or find the same one."""
    now = ctx.clock.now()
    row = RecipeRow(
        id=new_id("rcp"),
        name=recipe.name,
        digest=recipe.digest,
        body=recipe.model_dump(mode="json"),
        registered_at=now,
    )
    with ctx.store.write() as session:
        stored = catalog.register(session, row, {"name": row.name, "digest": row.digest}, now)
        events.record(session, now, "recipe", stored.id, "registered", name=recipe.name, by=caller.name)
        return recipe_view(stored)


def register_workload(ctx: Context, caller: Caller, workload: Workload) -> WorkloadView:
    """Store a workload, or find the same one."""
    now = ctx.clock.now()
    row = WorkloadRow(
        id=new_id("wld"),
        name=workload.name,
        digest=workload.digest,
        body=workload.model_dump(mode="json"),
        registered_at=now,
    )
    with ctx.store.write() as session:
        stored = catalog.register(session, row, {"name": row.name, "digest": row.digest}, now)
        events.record(session, now, "workload", stored.id, "registered", name=workload.name, by=caller.name)
        return workload_view(stored)


def list_builds(ctx: Context) -> list[BuildView]:
    """Return every registered build, newest first."""
    with ctx.store.read() as session:
        return [build_view(row) for row in catalog.all_of(session, BuildRow)]


def list_recipes(ctx: Context) -> list[RecipeView]:
    """Return every registered recipe, newest first."""
    with ctx.store.read() as session:
        return [recipe_view(row) for row in catalog.all_of(session, RecipeRow)]


def list_workloads(ctx: Context) -> list[WorkloadView]:
    """Return every registered workload, newest first."""
    with ctx.store.read() as session:
        return [workload_view(row) for row in catalog.all_of(session, WorkloadRow)]


def find_build(ctx: Context, name_or_id: str, kind: BuildKind | None = None) -> BuildView:
    """Return the build with this id, or the newest with this name and of this kind (any kind if None).

    Raises UnknownBuild, whose ``known`` and ``near`` name what there is.
    """
    with ctx.store.read() as session:
        row = catalog.find(session, BuildRow, name_or_id, kind)
        if row is None:
            rows = [r for r in catalog.all_of(session, BuildRow) if kind in (None, r.kind)]
            what = f"{kind} build" if kind else "build"
            raise _unknown(UnknownBuild, what, name_or_id, [r.name for r in rows])
        return build_view(row)


def find_recipe(ctx: Context, name_or_id: str) -> RecipeView:
    """Return the recipe with this id, or the newest with this name; raises UnknownRecipe as find_build does."""
    with ctx.store.read() as session:
        row = catalog.find(session, RecipeRow, name_or_id)
        if row is None:
            known = [r.name for r in catalog.all_of(session, RecipeRow)]
            raise _unknown(UnknownRecipe, "recipe", name_or_id, known)
        return recipe_view(row)


def find_workload(ctx: Context, name_or_id: str) -> WorkloadView:
    """Return the workload with this id, or the newest with this name; raises UnknownWorkload as find_build does."""
    with ctx.store.read() as session:
        row = catalog.find(session, WorkloadRow, name_or_id)
        if row is None:
            known = [r.name for r in catalog.all_of(session, WorkloadRow)]
            raise _unknown(UnknownWorkload, "workload", name_or_id, known)
        return workload_view(row)


def _unknown(error: type[NotFound], what: str, name: str, known: list[str]) -> NotFound:
    names = sorted(set(known))
    near = difflib.get_close_matches(name, names, n=3)
    details: dict[str, Any] = {"known": names[:100], "near": near}
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are: {', '.join(names[:20]) or 'none yet'}."
    return error(f"No {what} is named {name!r}; {hint}", **details)
