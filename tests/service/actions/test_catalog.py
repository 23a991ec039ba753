"""Names and what they mean; asking for a comparison; tokens."""

import pytest

from service.actions import catalog, events, requests, submit, tokens
from service.actions.context import Caller
from service.contract.builds import BuildKind, WheelSource
from service.contract.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    UnknownBuild,
    UnknownMetric,
    UnknownRecipe,
    UnknownWorkload,
)
from service.contract.recipes import Rule
from service.contract.requests import ComparisonRequest
from service.domain.states import JobState
from tests.clocks import SimulatedClock
from tests.workshop import ADA, RECIPE, WORKLOAD, RunnerLife, Workshop, build


def test_the_same_registration_again_is_the_same_row(workshop: Workshop) -> None:
    first = catalog.find_build(workshop.ctx, "v0.18.0")
    assert catalog.register_build(workshop.ctx, ADA, build("0.18.0")).id == first.id
    assert len(catalog.list_builds(workshop.ctx)) == 2
    recipe = catalog.register_recipe(workshop.ctx, ADA, RECIPE)
    assert catalog.list_recipes(workshop.ctx) == [recipe]
    workload = catalog.register_workload(workshop.ctx, ADA, WORKLOAD)
    assert catalog.list_workloads(workshop.ctx) == [workload]


def test_a_name_means_its_newest_registration_even_within_one_instant(workshop: Workshop) -> None:
    old = catalog.find_recipe(workshop.ctx, "plain")
    changed = RECIPE.model_copy(update={"args": ["--changed"]})
    new = catalog.register_recipe(workshop.ctx, ADA, changed)
    assert new.id != old.id
    assert catalog.find_recipe(workshop.ctx, "plain").id == new.id
    assert catalog.find_recipe(workshop.ctx, old.id).recipe.args == []
    assert catalog.register_recipe(workshop.ctx, ADA, RECIPE).id == old.id
    assert catalog.find_recipe(workshop.ctx, "plain").id == old.id


def test_one_name_may_be_of_both_kinds(workshop: Workshop) -> None:
    wheels = build("0.18.0").model_copy(update={"source": WheelSource(wheel_set="0.18.0", sha256="a" * 64)})
    real = catalog.register_build(workshop.ctx, ADA, wheels)
    assert catalog.find_build(workshop.ctx, "v0.18.0", BuildKind.WHEELS).id == real.id
    simulated = catalog.find_build(workshop.ctx, "v0.18.0", BuildKind.SIMULATED)
    assert simulated.kind is BuildKind.SIMULATED
    with pytest.raises(UnknownBuild):
        catalog.find_build(workshop.ctx, real.id, BuildKind.SIMULATED)
    assert workshop.submit().base.id == simulated.id


def test_a_source_does_not_change_its_version(workshop: Workshop) -> None:
    with pytest.raises(Conflict, match=r"0\.18\.0"):
        catalog.register_build(workshop.ctx, ADA, build("0.18.0").model_copy(update={"version": "0.18.1"}))


def test_unknown_names_are_told_what_is_near(workshop: Workshop) -> None:
    with pytest.raises(UnknownBuild, match=r"did you mean v0\.18\.0") as unknown:
        catalog.find_build(workshop.ctx, "v0.18.O")
    assert unknown.value.details["known"] == ["v0.18.0", "v0.19.1"]
    with pytest.raises(UnknownRecipe, match="known are: plain"):
        catalog.find_recipe(workshop.ctx, "zzz")
    with pytest.raises(UnknownWorkload, match="known are: tiny"):
        catalog.find_workload(workshop.ctx, "zzz")


def test_a_submission_names_what_is_wrong_and_stores_nothing(workshop: Workshop) -> None:
    for wrong, error in (
        ({"base": "v9"}, UnknownBuild),
        ({"recipe": "none"}, UnknownRecipe),
        ({"workload": "none"}, UnknownWorkload),
        ({"metric": "speed"}, UnknownMetric),
        ({"metric": "requests"}, InvalidInput),
        ({"head": "v0.18.0"}, InvalidInput),
    ):
        with pytest.raises(error):
            workshop.submit(**wrong)  # type: ignore[arg-type]
    assert requests.list_requests(workshop.ctx) == []


def test_a_recipe_that_cannot_serve_one_of_the_builds_is_refused(workshop: Workshop) -> None:
    odd = build("0.18.0").model_copy(update={"name": "nightly-x", "version": "nightly-x"})
    catalog.register_build(workshop.ctx, ADA, odd)
    catalog.register_recipe(workshop.ctx, ADA, RECIPE.model_copy(update={"rules": [Rule(since="0.18.0", args=["-x"])]}))
    with pytest.raises(InvalidInput, match="nightly-x"):
        workshop.submit(head="nightly-x")


def test_the_lease_carries_the_resolved_recipe(workshop: Workshop, runner: RunnerLife) -> None:
    rules = [Rule(until="0.19.0", args=["--old"], env={"A": "1"})]
    recipe = RECIPE.model_copy(update={"rules": rules, "args": ["--all"]})
    catalog.register_recipe(workshop.ctx, ADA, recipe)
    workshop.submit()
    first = workshop.work(runner)
    assert (first.build.version, first.recipe.args, first.recipe.env) == ("0.18.0", ["--all", "--old"], {"A": "1"})
    workshop.finish(first)
    assert workshop.work(runner).recipe.args == ["--all"]
    assert first.workload == WORKLOAD
    tokens.check_attempt(workshop.ctx, first.attempt_id, first.token)


def test_the_first_of_each_block_is_queued_and_seeds_follow_from_the_request(workshop: Workshop) -> None:
    view = workshop.submit(blocks=3, seed=7, metric="tpot_p50")
    assert view.metric == "tpot_p50_ms"
    assert [(job.block, job.position) for job in view.jobs] == [(b, p) for b in range(3) for p in range(4)]
    assert all((job.state is JobState.QUEUED) == (job.position == 0) for job in view.jobs)
    assert [job.seed for job in view.jobs] == [job.seed for job in workshop.submit(blocks=3, seed=7).jobs]
    assert {job.seed for job in view.jobs}.isdisjoint({job.seed for job in workshop.submit(blocks=3, seed=8).jobs})
    assert all(0 <= submit.job_seed(seed, 1, 2) < 2**31 for seed in (0, 1, 2**31 - 1))


def test_an_idempotency_key_makes_one_request(workshop: Workshop) -> None:
    first = workshop.submit(key="once")
    assert workshop.submit(key="once").id == first.id
    with pytest.raises(Conflict, match=first.id):
        workshop.submit(key="once", blocks=2)
    assert workshop.submit(key="twice").id != first.id
    assert len(requests.list_requests(workshop.ctx)) == 2
    named = {"base": "v0.18.0", "head": "v0.19.1", "recipe": "plain", "workload": "tiny", "blocks": 1}
    other = Caller("bob", "submitter")
    assert submit.submit_comparison(workshop.ctx, other, ComparisonRequest.model_validate(named), "once").id != first.id


def test_requests_are_listed_newest_first_and_by_pages(workshop: Workshop, clock: SimulatedClock) -> None:
    made = []
    for _ in range(5):
        made.append(workshop.submit().id)
        clock.advance(1)
    newest = made[::-1]
    assert [r.id for r in requests.list_requests(workshop.ctx, limit=2)] == newest[:2]
    assert [r.id for r in requests.list_requests(workshop.ctx, limit=9, before=newest[1])] == newest[2:]
    with pytest.raises(NotFound):
        requests.list_requests(workshop.ctx, before="req_none")
    with pytest.raises(NotFound):
        requests.get_request(workshop.ctx, "req_none")
    with pytest.raises(NotFound):
        requests.get_job(workshop.ctx, "job_none")


def test_events_are_read_on_from_the_last_one(workshop: Workshop) -> None:
    asked = workshop.submit()
    everything = events.list_events(workshop.ctx)
    assert next(e.kind for e in everything if e.request_id == asked.id) == "request.submitted"
    half = everything[: len(everything) // 2]
    assert half + events.list_events(workshop.ctx, after=half[-1].id) == everything
    assert {e.request_id for e in events.list_events(workshop.ctx, request_id=asked.id)} == {asked.id}
