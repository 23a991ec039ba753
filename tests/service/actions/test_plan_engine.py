"""What the planner tells the engine, what it makes of its answers, and what both come to together."""

from collections import Counter

import pytest

from service.actions import bisect, enrol, plan, requests
from service.actions.bisect_views import BisectView
from service.actions.context import Context
from service.contract.failures import FailureClass
from service.contract.lease import Heartbeat
from service.domain import bisect as engine
from service.domain.bisect import Answer, Decision, Evidence
from service.domain.states import BisectState, JobState, RequestState
from service.store import guards
from service.store.tables import Job
from tests.bisecting import LINEUP, Bisecting, halving, slow_from, stock_lineup
from tests.workshop import ADA, RunnerLife, Workshop, package

OPEN = (JobState.WAITING, JobState.QUEUED, JobState.ACTIVE)


@pytest.fixture
def workshop(sqlite_ctx: Context) -> Workshop:
    """SQLite alone: what depends on the database is in test_plan.py."""
    shop = Workshop(sqlite_ctx)
    shop.stock()
    stock_lineup(shop)
    return shop


@pytest.fixture
def at_work(workshop: Workshop, runner: RunnerLife, monkeypatch: pytest.MonkeyPatch) -> Bisecting:
    """With the simplest engine, for what is around it."""
    monkeypatch.setattr(engine, "decide", halving)
    return Bisecting(workshop, runner, slow_from("v0.19.0"))


@pytest.fixture
def real(workshop: Workshop, runner: RunnerLife) -> Bisecting:
    """With the real engine."""
    return Bisecting(workshop, runner, slow_from("v0.19.0"))


def test_one_bisect_that_fails_to_be_planned_does_not_hold_up_the_others(
    at_work: Bisecting, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = at_work.start(), at_work.start(seed=1, max_launches=39)

    def decide(evidence: Evidence) -> Decision:
        if evidence.aim.max_launches == 40:
            raise ZeroDivisionError("a bug of the engine")
        return halving(evidence)

    monkeypatch.setattr(engine, "decide", decide)
    with pytest.raises(ExceptionGroup):
        plan.plan(at_work.shop.ctx)
    assert at_work.view(first.id).steps == []
    assert len(at_work.view(second.id).steps) == 1


def test_launches_that_are_lost_again_and_again_fail_the_bisect_with_why(at_work: Bisecting) -> None:
    at_work.truth = {**slow_from("v0.19.0"), "v0.19.1": FailureClass.UPLOAD_FAILED}
    asked = at_work.start()
    clock = at_work.shop.ctx.clock
    for _ in range(40):
        at_work.step()
        clock.advance(11)  # type: ignore[attr-defined]
        if at_work.view(asked.id).state is BisectState.FAILED:
            break
    view = at_work.view(asked.id)
    assert view.state is BisectState.FAILED
    assert view.reason is not None
    assert "3 launches failed for good and not by their builds" in view.reason
    assert "upload_failed in start: v0.19.1 does not run" in view.reason
    assert view.sentence == view.reason
    assert not any(one.broken for one in view.lineup)
    assert requests.get_request(at_work.shop.ctx, asked.request_id).state is RequestState.FAILED
    assert not [job for job in view.jobs if job.state in OPEN]


def test_an_invalid_launch_is_evidence_of_nothing_and_counted(at_work: Bisecting) -> None:
    asked = at_work.start()
    plan.plan(at_work.shop.ctx)
    (first,) = at_work.lease_all()
    at_work.shop.finish(first, package(good=2))
    plan.plan(at_work.shop.ctx)
    view = at_work.view(asked.id)
    (point,) = view.lineup[0].points
    assert (point.value, point.unused_because) == (None, "invalid")
    assert (view.lineup[0].launches, view.launches_done) == (0, 1)


def test_without_a_runner_one_order_waits(workshop: Workshop) -> None:
    at_work = Bisecting(workshop, RunnerLife("run_none"), {})
    view = at_work.start()
    assert plan.plan(workshop.ctx) == 1
    assert plan.plan(workshop.ctx) == 0
    assert len(at_work.view(view.id).steps) == 1


def test_no_more_is_ordered_than_slots_are_free(at_work: Bisecting, monkeypatch: pytest.MonkeyPatch) -> None:
    ctx = at_work.shop.ctx
    seen: list[int] = []

    def decide(evidence: Evidence) -> Decision:
        seen.append(evidence.free_slots)
        return halving(evidence)

    def free() -> list[int]:
        """What each bisect was told since the last look, the oldest first."""
        plan.plan(ctx)
        told, seen[:] = seen[:], []
        return told

    monkeypatch.setattr(engine, "decide", decide)
    first = at_work.start()
    assert free() == [1], "a runner that never called is not there; one order may wait"
    at_work.lease_all()
    assert free() == [1], "now it is, and one of its slots is taken"
    at_work.start(seed=1)
    assert free() == [1]
    assert free() == [0, 0], "both slots are taken"
    heartbeat(at_work, at_work.shop.runner("another", slots=3))
    assert free() == [3, 3]
    at_work.shop.submit(blocks=2)
    assert free() == [1, 1]
    enrol.drain_runner(ctx, ADA, "another", True)
    assert free() == [0, 0]
    assert at_work.view(first.id).launches_pending == 4


def test_a_bisect_that_goes_before_others_does_not_wait_for_their_queue(
    at_work: Bisecting, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def decide(evidence: Evidence) -> Decision:
        seen.append(evidence.free_slots)
        return halving(evidence)

    monkeypatch.setattr(engine, "decide", decide)
    heartbeat(at_work, at_work.runner)
    at_work.shop.submit(blocks=5)
    at_work.start(priority=5)
    plan.plan(at_work.shop.ctx)
    assert seen == [2]


def heartbeat(at_work: Bisecting, life: RunnerLife) -> None:
    beat = Heartbeat(agent_version="1", boot_id=life.boot_id, disk_free_bytes=1)
    enrol.heartbeat(at_work.shop.ctx, life.id, beat)


def evaluated(at_work: Bisecting, view: BisectView) -> Counter[str]:
    """How often each build was asked for its accuracy."""
    with at_work.shop.ctx.store.read() as session:
        rows = [guards.fresh(session, Job, job.id) for job in view.jobs]
    names = {job.build.id: job.build.name for job in view.jobs}
    return Counter(names[row.build_id] for row in rows if row is not None and row.evaluate)


def test_accuracy_is_asked_of_each_build_once_and_of_none_again_in_its_cell(at_work: Bisecting) -> None:
    at_work.right = {f"v{version}": 90 for version in LINEUP}
    view = at_work.to_the_end(at_work.start(gsm8k=True).id)
    assert evaluated(at_work, view) == Counter({job.build.name for job in view.jobs})
    for one in view.lineup:
        assert (one.gsm8k is None) == (one.launches == 0)
    assert "n = 100, test questions" in view.lineup[0].gsm8k_note
    assert view.finding is not None
    assert "v0.19.0" in view.finding.accuracy
    again = at_work.to_the_end(at_work.start(gsm8k=True, seed=9).id)
    assert evaluated(at_work, again) == Counter()
    assert again.finding is not None
    assert "v0.19.0" in again.finding.accuracy


def test_an_accuracy_that_is_undefined_is_asked_for_once_more(at_work: Bisecting) -> None:
    view = at_work.to_the_end(at_work.start(gsm8k=True).id)
    launched = Counter(job.build.name for job in view.jobs)
    assert evaluated(at_work, view)["v0.18.1"] == 2
    assert all(times <= 2 for times in evaluated(at_work, view).values())
    assert launched["v0.18.1"] > 2
    assert view.lineup[0].gsm8k is None
    assert view.lineup[0].gsm8k_note == "undefined: no questions here"
    assert view.finding is not None
    assert "can't be compared" in view.finding.accuracy


def test_accuracy_is_not_asked_for_unless_it_is_wanted(at_work: Bisecting) -> None:
    view = at_work.to_the_end(at_work.start().id)
    assert evaluated(at_work, view) == Counter()
    assert view.finding is not None
    assert view.finding.accuracy == ""


@pytest.mark.parametrize("first_bad", ["v0.18.1", "v0.19.0", "v0.21.0"])
def test_the_engine_finds_the_step_and_every_decision_can_be_made_again(real: Bisecting, first_bad: str) -> None:
    real.truth = slow_from(first_bad)
    view = real.to_the_end(real.start().id)
    assert view.answer is Answer.CONFIRMED, view.sentence
    assert view.finding is not None
    assert view.finding.first_bad == first_bad
    assert view.finding.ratio == pytest.approx(1.45, rel=0.02)
    assert bisect.replay_steps(real.shop.ctx, view.id) == []
    assert not [job for job in view.jobs if job.state in OPEN]


def test_the_engine_names_nobody_where_nothing_changed(real: Bisecting) -> None:
    real.truth = slow_from("v0.21.0", bad_ms=20.0)
    view = real.to_the_end(real.start().id)
    assert view.answer is Answer.NOT_REPRODUCED, view.sentence
    assert view.finding is not None
    assert (view.finding.last_good, view.finding.first_bad) == (None, None)


@pytest.mark.parametrize(
    ("broken", "answer", "pair"),
    [
        ("v0.18.0", Answer.INCONCLUSIVE, (None, None)),
        ("v0.18.1", Answer.RANGE, ("v0.18.0", "v0.19.0")),
        ("v0.19.1", Answer.CONFIRMED, ("v0.18.1", "v0.19.0")),
        ("v0.21.0", Answer.INCONCLUSIVE, (None, None)),
    ],
)
def test_the_engine_never_blames_a_build_that_does_not_start(
    real: Bisecting, broken: str, answer: Answer, pair: tuple[str | None, str | None]
) -> None:
    real.truth = {**slow_from("v0.19.0"), broken: FailureClass.SERVER_CRASH}
    view = real.to_the_end(real.start().id)
    assert (view.state, view.answer) == (BisectState.ENDED, answer), view.sentence
    assert view.finding is not None
    assert (view.finding.last_good, view.finding.first_bad) == pair
    tried = [job for job in view.jobs if job.build.name == broken]
    assert [one.name for one in view.lineup if one.broken] == ([broken] if tried else [])


def test_the_engine_finds_where_accuracy_was_lost(real: Bisecting) -> None:
    """Every launch is asked: here accuracy is the metric."""
    real.truth = slow_from("v0.21.0", bad_ms=20.0)
    real.right = {f"v{version}": 92 if i < 4 else 80 for i, version in enumerate(LINEUP)}
    view = real.to_the_end(real.start(metric="gsm8k").id)
    assert view.answer is Answer.CONFIRMED, view.sentence
    assert view.finding is not None
    assert (view.finding.last_good, view.finding.first_bad) == ("v0.19.1", "v0.20.0")
    assert evaluated(real, view).total() == len(view.jobs)
    assert (view.metric, view.aim.lower_better) == ("gsm8k", False)
    assert view.lineup[0].value == pytest.approx(0.92, abs=0.011)
