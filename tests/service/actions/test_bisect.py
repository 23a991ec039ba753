"""Asking for a bisect: what is understood, what is refused, and what is listed."""

import hashlib
from datetime import UTC, datetime
from typing import Any

import pytest

from service.actions import bisect, catalog, events, requests
from service.actions.context import Context
from service.contract.builds import BuildSpec, SimulatedSource
from service.contract.errors import Conflict, InvalidInput, NotFound, UnknownBuild, UnknownMetric, UnknownWorkload
from service.domain.states import BisectState, RequestState
from tests.bisecting import Bisecting, slow_from, stock_lineup
from tests.workshop import ADA, RunnerLife, Workshop, build


@pytest.fixture
def workshop(sqlite_ctx: Context) -> Workshop:
    shop = Workshop(sqlite_ctx)
    shop.stock()
    stock_lineup(shop)
    return shop


@pytest.fixture
def at_work(workshop: Workshop) -> Bisecting:
    return Bisecting(workshop, RunnerLife("run_none"), slow_from("v0.19.0"))


def names(at_work: Bisecting, **more: Any) -> list[str]:
    return [one.name for one in at_work.start(**more).lineup]


def test_the_lineup_is_what_is_registered_between_the_ends(at_work: Bisecting) -> None:
    assert names(at_work, good="v0.18.1", bad="v0.20.0") == ["v0.18.1", "v0.19.0", "v0.19.1", "v0.20.0"]


def test_a_name_means_its_newest_registration_and_an_id_that_very_one(at_work: Bisecting) -> None:
    ctx = at_work.shop.ctx
    old = catalog.find_build(ctx, "v0.18.0")
    again = BuildSpec(name="v0.18.0", version="0.18.0", source=SimulatedSource(profile="v0.18.0", sha256="c" * 64))
    new = catalog.register_build(ctx, ADA, again)
    assert at_work.start().lineup[0].build.id == new.id
    assert at_work.start(good=old.id).lineup[0].build.id == old.id


def test_builds_that_are_the_same_thing_are_one_node(at_work: Bisecting) -> None:
    sha256 = hashlib.sha256(b"0.19.0").hexdigest()
    same = BuildSpec(
        name="v0.19.0.post1", version="0.19.0.post1", source=SimulatedSource(profile="v0.19.0", sha256=sha256)
    )
    catalog.register_build(at_work.shop.ctx, ADA, same)
    assert "v0.19.0 = v0.19.0.post1" in names(at_work)


def test_a_nightly_takes_the_place_of_its_date(at_work: Bisecting) -> None:
    shop = at_work.shop
    dates = {"0.18.0": datetime(2026, 2, 1, tzinfo=UTC), "0.21.0": datetime(2026, 3, 1, tzinfo=UTC)}
    for version, dated_at in dates.items():
        source = SimulatedSource(profile=f"dated-{version}", sha256=hashlib.sha256(version.encode()).hexdigest())
        dated = BuildSpec(name=f"v{version}", version=version, source=source, dated_at=dated_at)
        assert catalog.register_build(shop.ctx, ADA, dated).dated_at == dated_at
    night = f"nightly-{'ab' * 20}"
    source = SimulatedSource(profile="night", sha256="e" * 64)
    without = BuildSpec(name=night, version=night, source=source)
    catalog.register_build(shop.ctx, ADA, without)
    assert night not in names(at_work)
    later = SimulatedSource(profile="night", sha256="f" * 64)
    catalog.register_build(
        shop.ctx, ADA, BuildSpec(name=night, version=night, source=later, dated_at=datetime(2026, 2, 9, tzinfo=UTC))
    )
    assert names(at_work)[:2] == ["v0.18.0", night]


def test_a_lineup_that_was_given_keeps_its_order(at_work: Bisecting) -> None:
    given = ["v0.18.0", "v0.19.1", "v0.19.0", "v0.21.0"]
    assert names(at_work, lineup=given) == given


def test_two_neighbours_are_a_lineup(at_work: Bisecting) -> None:
    assert names(at_work, good="v0.18.1", bad="v0.19.0") == ["v0.18.1", "v0.19.0"]


def test_what_can_not_be_searched_is_refused_and_nothing_is_stored(at_work: Bisecting) -> None:
    refused: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (InvalidInput, "does not come before", {"good": "v0.21.0", "bad": "v0.18.0"}),
        (InvalidInput, "before", {"good": "v0.18.0", "bad": "v0.18.0"}),
        (InvalidInput, "more than once", {"lineup": ["v0.18.0", "v0.19.0", "v0.19.0", "v0.21.0"]}),
        (InvalidInput, "not among", {"lineup": ["v0.18.0", "v0.19.0"]}),
        (UnknownBuild, "v0.18.9", {"good": "v0.18.9"}),
        (UnknownWorkload, "tinny", {"workload": "tinny"}),
        (UnknownMetric, "gsm8k", {"metric": "tpot"}),
    ]
    for error, said, asked in refused:
        with pytest.raises(error, match=said):
            at_work.start(**asked)
    ctx = at_work.shop.ctx
    assert (bisect.list_bisects(ctx), requests.list_requests(ctx)) == ([], [])


def test_one_key_is_one_bisect(at_work: Bisecting) -> None:
    first = at_work.start(key="a")
    assert at_work.start(key="a").id == first.id
    with pytest.raises(Conflict, match="another request"):
        at_work.start(key="a", seed=1)
    assert at_work.start(key="b").id != first.id
    at_work.shop.submit(key="c")
    with pytest.raises(Conflict):
        at_work.start(key="c")


def test_it_is_found_by_its_id_and_by_its_requests(at_work: Bisecting) -> None:
    ctx = at_work.shop.ctx
    asked = at_work.start(metric="tpot_p50", smallest=0.05, max_launches=20)
    assert bisect.get_bisect(ctx, asked.request_id) == asked
    assert (asked.metric, asked.label, asked.unit) == ("tpot_p50_ms", "TPOT p50", "ms")
    assert (asked.aim.smallest, asked.aim.max_launches, asked.aim.lower_better) == (0.05, 20, True)
    assert (asked.priority, asked.submitter, asked.marks) == (-10, "ada", "simulated")
    owner = requests.get_request(ctx, asked.request_id)
    assert (owner.kind, owner.state, owner.base.name, owner.head.name) == (
        "bisect",
        RequestState.OPEN,
        "v0.18.0",
        "v0.21.0",
    )
    with pytest.raises(NotFound):
        bisect.get_bisect(ctx, "bis_none")


def test_the_newest_is_listed_first_and_pages_follow_each_other(at_work: Bisecting) -> None:
    ctx = at_work.shop.ctx
    ids = [at_work.start(seed=seed).id for seed in range(5)]
    first = bisect.list_bisects(ctx, limit=2)
    second = bisect.list_bisects(ctx, limit=10, before=first[-1].id)
    assert [one.id for one in [*first, *second]] == ids[::-1]
    assert {one.state for one in first} == {BisectState.CREATED}


def test_what_was_asked_is_an_event(at_work: Bisecting) -> None:
    asked = at_work.start()
    (event,) = [
        one for one in events.list_events(at_work.shop.ctx, request_id=asked.request_id) if one.kind == "bisect.created"
    ]
    assert event.subject_id == asked.id
    assert event.data["by"] == "ada"
    assert event.data["lineup"][0] == "v0.18.0"


def test_a_build_of_the_wrong_kind_of_version_is_refused_when_the_recipe_has_rules(at_work: Bisecting) -> None:
    ctx = at_work.shop.ctx
    recipe = catalog.find_recipe(ctx, "plain").recipe
    ruled = type(recipe).model_validate(
        {**recipe.model_dump(mode="json"), "name": "ruled", "rules": [{"since": "0.19.0", "args": ["--x"]}]}
    )
    catalog.register_recipe(ctx, ADA, ruled)
    catalog.register_build(ctx, ADA, build("0.19.0.5").model_copy(update={"version": "main"}))
    with pytest.raises(InvalidInput, match="main"):
        at_work.start(recipe="ruled", lineup=["v0.18.0", "v0.19.0.5", "v0.21.0"])
