"""The planner: what becomes of a bisect, step by step, on both databases."""

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from service.actions import attempts, bisect, cancel, events, plan, requests
from service.actions.context import Context
from service.contract.errors import Busy, Conflict
from service.contract.failures import FailureClass
from service.contract.lease import AttemptState, Directive, Lease, Release, ReleaseReason, Renewal
from service.domain import bisect as engine
from service.domain.bisect import Answer, Decision, Evidence, Phase
from service.domain.states import BISECT, BisectState, JobState, RequestState
from service.store import guards
from service.store.tables import Job
from tests.bisecting import Bisecting, halving, slow_from, stock_lineup
from tests.workshop import ADA, RunnerLife, Workshop

OPEN = (JobState.WAITING, JobState.QUEUED, JobState.ACTIVE)


@pytest.fixture
def simple(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the simplest engine in, for tests of what is around it."""
    monkeypatch.setattr(engine, "decide", halving)


@pytest.fixture
def at_work(workshop: Workshop, runner: RunnerLife, simple: None) -> Bisecting:
    stock_lineup(workshop)
    return Bisecting(workshop, runner, slow_from("v0.19.0"))


def kinds(ctx: Context, request_id: str, subject: str) -> list[str]:
    found = events.list_events(ctx, request_id=request_id, limit=1000)
    return [event.kind for event in found if event.subject_kind == subject]


def states(ctx: Context, request_id: str) -> list[str]:
    """The states that a bisect went through, each checked against the table."""
    words = [kind.split(".")[1] for kind in kinds(ctx, request_id, "bisect")]
    went = [word for word in words if word in set(BisectState)]
    for before, after in pairwise(went):
        assert BisectState(after) in BISECT[BisectState(before)]
    return went


def test_a_whole_bisect_from_its_start_to_its_finding(at_work: Bisecting) -> None:
    ctx = at_work.shop.ctx
    asked = at_work.start()
    assert (asked.state, asked.steps, asked.picture) == (BisectState.CREATED, [], None)
    assert [one.name for one in asked.lineup] == ["v0.18.0", "v0.18.1", "v0.19.0", "v0.19.1", "v0.20.0", "v0.21.0"]
    view = at_work.to_the_end(asked.id)
    assert (view.state, view.answer) == (BisectState.ENDED, Answer.CONFIRMED)
    assert view.finding is not None
    assert (view.finding.last_good, view.finding.first_bad) == ("v0.18.1", "v0.19.0")
    assert view.sentence == view.finding.sentence
    assert states(ctx, view.request_id) == ["created", "checking_ends", "searching", "confirming", "ended"]
    assert requests.get_request(ctx, view.request_id).state is RequestState.DONE
    assert {job.state for job in view.jobs} == {JobState.DONE}
    proofs = [point for one in view.lineup for point in one.points if point.phase is Phase.CONFIRM]
    assert sorted(point.launch_id for point in proofs) == sorted(view.finding.confirmation)
    assert len(view.finding.confirmation) == 4
    good, first_bad = view.lineup[1], view.lineup[2]
    assert good.value is not None
    assert first_bad.value is not None
    assert first_bad.value / good.value == pytest.approx(1.45, rel=0.02)
    assert first_bad.metrics["tpot_p50_ms"] == pytest.approx(first_bad.value)
    assert bisect.replay_steps(ctx, view.id) == []


def test_every_step_says_what_it_ordered_and_its_jobs_are_there(at_work: Bisecting) -> None:
    view = at_work.to_the_end(at_work.start().id)
    assert [step.number for step in view.steps] == list(range(1, len(view.steps) + 1))
    ordered = [order for step in view.steps for order in step.orders]
    assert [order.block for order in ordered] == list(range(len(ordered)))
    jobs: dict[int, list[str]] = {}
    for job in view.jobs:
        jobs.setdefault(job.block, []).append(job.build.name)
    assert jobs == {order.block: order.builds for order in ordered}
    assert len({job.seed for job in view.jobs}) == len(view.jobs)
    assert [step.launches_done for step in view.steps] == sorted(step.launches_done for step in view.steps)
    assert view.slot_minutes == pytest.approx(len(view.jobs) * 0.25, rel=0.5)
    assert bisect.list_steps(at_work.shop.ctx, view.id) == view.steps


def test_a_planner_without_news_does_nothing(at_work: Bisecting) -> None:
    ctx = at_work.shop.ctx
    asked = at_work.start()
    assert plan.plan(ctx) == 1
    before = at_work.view(asked.id)
    assert [plan.plan(ctx) for _ in range(3)] == [0, 0, 0]
    at_work.lease_all()
    assert plan.plan(ctx) == 0
    assert at_work.view(asked.id).steps == before.steps


def test_planners_that_race_take_one_step(at_work: Bisecting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have decided before either writes."""
    ctx = at_work.shop.ctx
    asked = at_work.start()
    both = threading.Barrier(2)

    def decide(evidence: Evidence) -> Decision:
        both.wait(30)
        return halving(evidence)

    monkeypatch.setattr(engine, "decide", decide)
    with ThreadPoolExecutor(2) as pool:
        taken = [future.result(60) for future in [pool.submit(plan.plan, ctx) for _ in range(2)]]
    assert sorted(taken) == [0, 1]
    view = at_work.view(asked.id)
    assert (len(view.steps), len(view.jobs)) == (1, 4)


def test_a_planner_that_dies_while_it_writes_leaves_nothing(
    at_work: Bisecting, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = at_work.shop.ctx
    asked = at_work.start()
    insert = guards.insert

    def dying(session: Any, *rows: Any) -> None:
        if isinstance(rows[0], Job):
            raise Busy("killed")
        insert(session, *rows)

    with monkeypatch.context() as patched:
        patched.setattr(guards, "insert", dying)
        with pytest.raises(ExceptionGroup, match="1 of 1 bisects"):
            plan.plan(ctx)
    view = at_work.view(asked.id)
    assert (view.state, view.steps, view.jobs) == (BisectState.CREATED, [], [])
    assert at_work.to_the_end(asked.id).answer is Answer.CONFIRMED


def test_a_pause_lets_what_runs_finish_and_begins_nothing_more(at_work: Bisecting) -> None:
    ctx = at_work.shop.ctx
    asked = at_work.start()
    plan.plan(ctx)
    (running,) = at_work.lease_all()
    paused = bisect.pause_bisect(ctx, ADA, asked.id)
    assert (paused.paused, paused.state) == (True, BisectState.CHECKING_ENDS)
    assert bisect.pause_bisect(ctx, ADA, asked.id).paused
    renewal = Renewal(fence=running.fence, state=AttemptState.SERVING, step="start")
    assert attempts.renew(ctx, running.attempt_id, renewal).directive is Directive.CONTINUE
    at_work.answer(running)
    assert (plan.plan(ctx), at_work.lease_all()) == (0, [])
    before = at_work.view(asked.id)
    assert before.launches_done == 1
    assert not bisect.resume_bisect(ctx, ADA, asked.id).paused
    view = at_work.to_the_end(asked.id)
    assert view.finding is not None
    assert view.finding.first_bad == "v0.19.0"
    assert view.steps[: len(before.steps)] == before.steps
    told = kinds(ctx, view.request_id, "bisect")
    assert (told.count("bisect.paused"), told.count("bisect.resumed")) == (1, 1)


def test_a_paused_bisect_leaves_the_slots_to_others(at_work: Bisecting) -> None:
    ctx = at_work.shop.ctx
    first = at_work.start()
    at_work.step()
    bisect.pause_bisect(ctx, ADA, first.id)
    second = at_work.start(seed=2)
    view = at_work.to_the_end(second.id)
    assert view.answer is Answer.CONFIRMED
    assert at_work.view(first.id).launches_done == 1


def test_a_step_that_was_decided_before_a_pause_is_not_taken_after_it(
    at_work: Bisecting, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = at_work.shop.ctx
    asked = at_work.start()

    def decide(evidence: Evidence) -> Decision:
        bisect.pause_bisect(ctx, ADA, asked.id)
        return halving(evidence)

    monkeypatch.setattr(engine, "decide", decide)
    assert plan.plan(ctx) == 0
    view = at_work.view(asked.id)
    assert (view.paused, view.steps, view.jobs) == (True, [], [])


@pytest.mark.parametrize("by_request", [False, True])
def test_a_cancel_ends_a_bisect_at_once_and_its_attempts_at_their_next_renewal(
    at_work: Bisecting, by_request: bool
) -> None:
    ctx = at_work.shop.ctx
    asked = at_work.start()
    at_work.step()
    plan.plan(ctx)
    (running,) = at_work.lease_all()
    if by_request:
        cancel.cancel_request(ctx, ADA, asked.request_id)
    else:
        bisect.cancel_bisect(ctx, ADA, asked.id)
    view = bisect.cancel_bisect(ctx, ADA, asked.id)
    assert (view.state, view.answer, view.reason) == (BisectState.CANCELLED, None, "cancelled by ada")
    assert (plan.plan(ctx), at_work.lease_all()) == (0, [])
    renewal = Renewal(fence=running.fence, state=AttemptState.SERVING, step="start")
    assert attempts.renew(ctx, running.attempt_id, renewal).directive is Directive.CANCEL
    assert requests.get_request(ctx, view.request_id).state is RequestState.OPEN
    attempts.release(ctx, running.attempt_id, Release(fence=running.fence, reason=ReleaseReason.CANCELLED))
    view = at_work.view(asked.id)
    assert {job.state for job in view.jobs} == {JobState.DONE, JobState.CANCELLED}
    assert view.launches_done == 1
    assert requests.get_request(ctx, view.request_id).state is RequestState.CANCELLED
    assert states(ctx, view.request_id)[-1] == "cancelled"
    with pytest.raises(Conflict, match="cancelled"):
        bisect.pause_bisect(ctx, ADA, asked.id)


def test_a_paused_bisect_can_be_cancelled(at_work: Bisecting) -> None:
    ctx = at_work.shop.ctx
    asked = at_work.start()
    bisect.pause_bisect(ctx, ADA, asked.id)
    assert bisect.cancel_bisect(ctx, ADA, asked.id).state is BisectState.CANCELLED
    assert requests.get_request(ctx, asked.request_id).state is RequestState.CANCELLED


def test_what_has_ended_can_be_neither_paused_nor_cancelled(at_work: Bisecting) -> None:
    ctx = at_work.shop.ctx
    view = at_work.to_the_end(at_work.start().id)
    for action in (bisect.pause_bisect, bisect.resume_bisect, bisect.cancel_bisect):
        with pytest.raises(Conflict, match="ended"):
            action(ctx, ADA, view.id)


def test_a_build_that_does_not_start_on_two_slots_is_skipped_and_named(at_work: Bisecting) -> None:
    ctx = at_work.shop.ctx
    at_work.truth = {**slow_from("v0.20.0"), "v0.19.1": FailureClass.SERVER_START}
    view = at_work.to_the_end(at_work.start().id)
    assert (view.state, view.answer) == (BisectState.ENDED, Answer.RANGE)
    assert view.finding is not None
    assert (view.finding.last_good, view.finding.first_bad) == ("v0.19.0", "v0.20.0")
    assert [(one.name, one.why) for one in view.finding.skipped] == [
        ("v0.19.1", "server_start in start: v0.19.1 does not run")
    ]
    assert [one.name for one in view.lineup if one.broken] == ["v0.19.1"]
    (lost,) = [job for job in view.jobs if job.state is JobState.FAILED]
    assert (lost.build.name, lost.attempts) == ("v0.19.1", 2)
    found = events.list_events(ctx, request_id=view.request_id, limit=1000)
    used = [event.data["slot"] for event in found if event.kind == "attempt.leased" and event.data["job_id"] == lost.id]
    assert sorted(used) == [0, 1]
    assert requests.get_request(ctx, view.request_id).state is RequestState.DONE


def test_a_block_goes_on_without_the_build_that_is_broken(at_work: Bisecting) -> None:
    """Of good, bad, bad, good the second fails: the third is not tried, the fourth is."""
    at_work.truth = {**slow_from("v0.19.0"), "v0.21.0": FailureClass.SPEC_INVALID}
    asked = at_work.start()
    for _ in range(3):
        assert at_work.step()
    ends = [(job.build.name, job.state) for job in at_work.view(asked.id).jobs if job.block == 0]
    assert ends == [
        ("v0.18.0", JobState.DONE),
        ("v0.21.0", JobState.FAILED),
        ("v0.21.0", JobState.CANCELLED),
        ("v0.18.0", JobState.DONE),
    ]
    assert requests.get_request(at_work.shop.ctx, asked.request_id).state is RequestState.OPEN


def test_what_a_person_asks_for_goes_first(at_work: Bisecting) -> None:
    asked = at_work.start()
    at_work.step()
    mine = at_work.shop.submit(blocks=2)
    seen: list[Lease] = []
    while requests.get_request(at_work.shop.ctx, mine.id).state is RequestState.OPEN:
        seen += at_work.step()
        assert len(seen) < 20
    assert {lease.request_id for lease in seen} == {mine.id}
    assert at_work.to_the_end(asked.id).answer is Answer.CONFIRMED


def test_the_engine_finds_the_step_and_every_decision_can_be_made_again(workshop: Workshop, runner: RunnerLife) -> None:
    stock_lineup(workshop)
    real = Bisecting(workshop, runner, slow_from("v0.19.0"))
    view = real.to_the_end(real.start().id)
    assert view.answer is Answer.CONFIRMED, view.sentence
    assert view.finding is not None
    assert view.finding.first_bad == "v0.19.0"
    assert bisect.replay_steps(workshop.ctx, view.id) == []
    states(workshop.ctx, view.request_id)
