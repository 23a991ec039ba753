"""Builds, recipes and workloads: /api/v1/builds, /recipes, /workloads.

Registering the same thing again answers the same row. A name may be registered again with other content: the newest
registration is what the name means from then on, and what was measured before keeps its own row.
"""

from fastapi import APIRouter

from service.actions import catalog
from service.actions.views import BuildView, RecipeView, WorkloadView
from service.api.problems import RESPONSES
from service.contract.builds import BuildSpec
from service.contract.recipes import Recipe
from service.contract.workloads import Workload
from service.security import Ctx, Submitter

router = APIRouter(prefix="/api/v1", tags=["catalog"], responses=RESPONSES)


@router.get("/builds")
def list_builds(ctx: Ctx) -> list[BuildView]:
    """Every registered build."""
    return catalog.list_builds(ctx)


@router.post("/builds")
def register_build(ctx: Ctx, caller: Submitter, body: BuildSpec) -> BuildView:
    """Register a build."""
    return catalog.register_build(ctx, caller, body)


@router.get("/recipes")
def list_recipes(ctx: Ctx) -> list[RecipeView]:
    """Every registered recipe."""
    return catalog.list_recipes(ctx)


@router.post("/recipes")
def register_recipe(ctx: Ctx, caller: Submitter, body: Recipe) -> RecipeView:
    """Register a recipe."""
    return catalog.register_recipe(ctx, caller, body)


@router.get("/workloads")
def list_workloads(ctx: Ctx) -> list[WorkloadView]:
    """Every registered workload."""
    return catalog.list_workloads(ctx)


@router.post("/workloads")
def register_workload(ctx: Ctx, caller: Submitter, body: Workload) -> WorkloadView:
    """Register a workload."""
    return catalog.register_workload(ctx, caller, body)
