"""The queue against a plain model: 10 000 random steps on each database, compared after every one of them."""

import os
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import text
from sqlmodel import SQLModel

from service.actions import attempts, cancel, enrol, reap
from service.actions.context import Context
from service.contract.errors import Conflict, LeaseLost, ResultConflict
from service.contract.failures import FailureClass
from service.contract.ids import new_id
from service.contract.lease import Directive, Heartbeat, Lease, Release, ReleaseReason, Renewal
from service.contract.upload import Result
from service.domain.states import ATTEMPT, JOB, LIVE_ATTEMPT, REQUEST, RUNNER, SLOT
from tests.clocks import SimulatedClock
from tests.service.actions.queue_model import (
    LIVE,
    TTL_MS,
    ModelAttempt,
    ModelJob,
    ModelRequest,
    ModelRunner,
    QueueModel,
)
from tests.workshop import ADA, Package, RunnerLife, Workshop, failed, package

STEPS = 10_000
STEPS_EACH = 50
PICK = st.integers(0, 2**16)
FAILURES = (*[FailureClass.IMAGE_PULL] * 4, *[FailureClass.SERVER_START] * 3, FailureClass.SPEC_INVALID)
SECONDS = (1, 10, 10, 30, 100, 181, 181, 400)
WEIGHTS = {
    "claim": 9,
    "renew": 4,
    "finish": 4,
    "fail": 3,
    "release": 2,
    "let_time_pass": 4,
    "heartbeat": 2,
    "submit": 2,
    "cancel": 2,
    "drain": 1,
    "hand_in_again": 1,
}
"""What may happen, and how often."""
WITHOUT_ATTEMPTS = ("submit", "let_time_pass", "heartbeat", "cancel", "drain")
SITUATIONS = ("completed", "failed", "late", "overtaken", "invalid", "released", "cancelled", "restarted", "expired")
"""What must have come about, and at least ten times, for the steps to mean something."""
KEPT = {"build", "recipe", "workload", "cell"}
TABLES: dict[str, Mapping[Any, frozenset[Any]]] = {
    "job": JOB,
    "attempt": ATTEMPT,
    "request": REQUEST,
    "runner": RUNNER,
    "slot": SLOT,
}


class QueueMachine(RuleBasedStateMachine):
    """One example: two runners, up to six requests, and whatever may happen to them."""

    def __init__(self, shop: Workshop, clock: SimulatedClock, good: Package, bad: Package, count: Counter[str]) -> None:
        super().__init__()
        self.shop, self.ctx, self.clock, self.count = shop, shop.ctx, clock, count
        self.good, self.bad = good, bad
        self.model = QueueModel()
        self.lives: dict[str, RunnerLife] = {}
        self.leases: dict[str, Lease] = {}

    @initialize()
    def two_runners(self) -> None:
        for name, slots in (("large", 2), ("small", 1)):
            life = self.shop.runner(name, slots=slots)
            view = next(r for r in enrol.list_runners(self.ctx) if r.id == life.id)
            runner = ModelRunner(life.id, [slot.id for slot in view.slots])
            self.lives[life.id], self.model.runners[life.id] = life, runner
            self.model.owner |= dict.fromkeys(runner.slots)
            self._beat(runner, reborn=True, draining=False)
        self.submit(1, 0)

    @rule(what=st.sampled_from([name for name, weight in WEIGHTS.items() for _ in range(weight)]), pick=PICK, how=PICK)
    def happens(self, what: str, pick: int, how: int) -> None:
        """One thing happens: ``pick`` says to what, ``how`` in which way.

        One rule and not a dozen: hypothesis leaves rules out of an example at random, and without most of these
        nothing comes about.
        """
        self.count["steps"] += 1
        self._pass(1)  # so that no order depends on ids, which are random
        has_attempts = bool(self.model.attempts)
        getattr(self, what if has_attempts or what in WITHOUT_ATTEMPTS else "claim")(pick, how)

    def submit(self, pick: int, how: int) -> None:
        if len(self.model.requests) >= 8:
            return
        blocks, priority = 1 + pick % 2, how % 2
        view = self.shop.submit(blocks=blocks, priority=priority)
        request = ModelRequest(view.id, priority, self.model.now)
        self.model.requests[view.id] = request
        for job in view.jobs:
            state = "queued" if job.position == 0 else "waiting"
            self.model.jobs[job.id] = ModelJob(job.id, request, job.block, job.position, state)

    def claim(self, pick: int, how: int) -> None:
        runner, slot = self._slot(pick)
        life, index = self.lives[runner.id], runner.slots.index(slot)
        request_id = new_id("lrq")
        self.model.hear(runner, reborn=False)
        wanted = None
        if self.model.takes_work(runner) and self.model.owner[slot] is None:
            wanted = self.model.candidate(slot)
        leased = self.shop.lease(life, index, request_id)
        if wanted is None:
            assert leased is None
            return
        assert leased is not None
        assert (leased.job_id, leased.fence) == (wanted.id, wanted.fence + 1)
        self.model.begin(wanted, leased.attempt_id, runner, slot)
        self.leases[leased.attempt_id] = leased
        if how % 10 == 0:  # the answer was lost
            assert self.shop.lease(life, index, request_id) == leased

    def renew(self, pick: int, how: int) -> None:
        attempt, state = self._attempt(pick), LIVE_ATTEMPT[how % len(LIVE_ATTEMPT)]
        fence = attempt.fence + (how % 11 == 0)
        said = Renewal(fence=fence, state=state, step=state)
        if attempt.state not in LIVE or fence != attempt.fence:
            with pytest.raises(LeaseLost):
                attempts.renew(self.ctx, attempt.id, said)
            return
        directive = attempts.renew(self.ctx, attempt.id, said).directive
        drain = Directive.DRAIN if attempt.runner.drain else Directive.CONTINUE
        assert directive is (Directive.CANCEL if attempt.job.cancel else drain)
        attempt.lease_until = self.model.now + TTL_MS
        attempt.state = max(attempt.state, state.value, key=LIVE.index)

    def let_time_pass(self, pick: int, how: int) -> None:
        seconds = SECONDS[pick % len(SECONDS)]
        gone = {a.id for a in self.model.attempts.values() if a.state == "expired"}
        self._pass(seconds * 1000)
        self.model.reap()
        self.count["expired"] += sum(a.state == "expired" for a in self.model.attempts.values() if a.id not in gone)
        reap.reap(self.ctx)

    def finish(self, pick: int, how: int) -> None:
        attempt = self._attempt(pick)
        valid = how % 5 != 0
        made = self.good if valid else self.bad
        if attempt.result is None and attempt.state in (*LIVE, "expired"):
            self.shop.upload(self.leases[attempt.id], made)
            attempt.lease_until = self.model.now + TTL_MS
        self._hand_in(attempt, made.result(attempt.fence), None if valid else "invalid_measurement")

    def fail(self, pick: int, how: int) -> None:
        attempt, failure = self._attempt(pick), FAILURES[how % len(FAILURES)]
        self._hand_in(attempt, Result(fence=attempt.fence, body=failed(failure)), failure.value)

    def hand_in_again(self, pick: int, how: int) -> None:
        having = [a for a in self.model.attempts.values() if a.result is not None]
        if not having:
            return
        attempt = having[pick % len(having)]
        assert attempts.put_result(self.ctx, attempt.id, attempt.result).replay

    def release(self, pick: int, how: int) -> None:
        told = [a for a in self.model.attempts.values() if a.state in LIVE and a.job.cancel]
        attempt, reason = (told or [self._attempt(pick)])[0], list(ReleaseReason)[how % len(ReleaseReason)]
        fence = attempt.fence + (how % 11 == 0)
        said = Release(fence=fence, reason=reason)
        gone = attempt.state in ("completed", "failed", "expired") or fence != attempt.fence
        if gone:
            with pytest.raises(LeaseLost):
                attempts.release(self.ctx, attempt.id, said)
            return
        attempts.release(self.ctx, attempt.id, said)
        if attempt.state in LIVE:
            self.model.give_back(attempt)
            self.count[attempt.state] += 1

    def cancel(self, pick: int, how: int) -> None:
        asked = list(self.model.requests.values())
        running = [a.job.request for a in self.model.attempts.values() if a.state in LIVE and how % 4]
        request = (running or asked)[pick % len(running or asked)]
        if request.state in ("done", "failed"):
            with pytest.raises(Conflict):
                cancel.cancel_request(self.ctx, ADA, request.id)
            return
        cancel.cancel_request(self.ctx, ADA, request.id)
        self.model.cancel(request)

    def heartbeat(self, pick: int, how: int) -> None:
        runner, _ = self._slot(pick)
        self._beat(runner, reborn=how % 2 == 0, draining=how % 7 == 0)

    def drain(self, pick: int, how: int) -> None:
        runner, _ = self._slot(pick)
        on = how % 3 == 0
        enrol.drain_runner(self.ctx, ADA, runner.id, on)
        if runner.drain != on:
            runner.drain = on
            if runner.state in ("online", "draining"):
                runner.become("draining" if on else "online", self.model.now)

    @invariant()
    def the_database_is_as_the_model(self) -> None:
        with self.ctx.store.engine.connect() as connection:

            def query(sql: str) -> list[Any]:
                return list(connection.execute(text(sql)).all())

            model = self.model
            wanted = query("SELECT id, state, fence, slot_id, avoided_slot_id FROM job")
            assert {i: (s, f, t, a) for i, s, f, t, a in wanted} == {
                job.id: (job.state, job.fence, job.slot, job.avoids) for job in model.jobs.values()
            }
            found = query("SELECT id, state, fence, job_id FROM attempt")
            assert {i: (s, f, j) for i, s, f, j in found} == {
                a.id: (a.state, a.fence, a.job.id) for a in model.attempts.values()
            }
            assert {i: s for i, s in query("SELECT id, state FROM request")} == {
                request.id: request.state for request in model.requests.values()
            }
            assert {i: s for i, s in query("SELECT id, state FROM runner")} == {
                runner.id: runner.state for runner in model.runners.values()
            }
            slots = query("SELECT id, attempt_id, state FROM slot")
            assert {i: a for i, a, _ in slots} == model.owner
        self._promises(found, slots)

    def _promises(self, found: list[Any], slots: list[Any]) -> None:
        """What must hold whatever the model says."""
        live: dict[str, int] = defaultdict(int)
        newest: dict[str, int] = defaultdict(int)
        for _, state, fence, job_id in found:
            live[job_id] += state in LIVE
            newest[job_id] = max(newest[job_id], fence)
        assert all(number <= 1 for number in live.values())
        assert all(fence == newest[job_id] for _, state, fence, job_id in found if state in LIVE)
        owners = [attempt_id for _, attempt_id, _ in slots if attempt_id is not None]
        assert sorted(owners) == sorted(attempt_id for attempt_id, state, _, _ in found if state in LIVE)
        assert all((attempt_id is None) == (state == "free") for _, attempt_id, state in slots)

    def teardown(self) -> None:
        """Replay the events: each subject went from state to state as its table allows, to where it is now."""
        with self.ctx.store.engine.begin() as connection:
            seen = list(connection.execute(text("SELECT subject_kind, subject_id, kind FROM event ORDER BY id")))
            where = {
                (kind, row.id): row.state
                for kind in TABLES
                for row in connection.execute(text(f"SELECT id, state FROM {kind}"))
            }
            for table in reversed(SQLModel.metadata.sorted_tables):
                if table.name not in KEPT:
                    connection.execute(table.delete())
        reached: dict[tuple[str, str], str] = {}
        for kind, subject, what in seen:
            state = what.split(".", 1)[1]
            if kind not in TABLES or state not in TABLES[kind]:
                continue
            before = reached.get((kind, subject), "free" if kind == "slot" else None)
            if before is not None:
                assert state in TABLES[kind][before], f"{kind} {subject}: {before} -> {state}"
            reached[kind, subject] = state
        untouched = {key: "free" for key in where if key[0] == "slot"} | {
            ("request", request_id): "open" for request_id in self.model.requests
        }
        assert untouched | reached == where

    def _hand_in(self, attempt: ModelAttempt, result: Result, failure: str | None) -> None:
        if attempt.result is not None and attempt.result != result:
            with pytest.raises(ResultConflict):
                attempts.put_result(self.ctx, attempt.id, result)
            return
        answer = attempts.put_result(self.ctx, attempt.id, result)
        if attempt.result is not None:
            assert answer.replay
            return
        attempt.result = result
        counts = self.model.counts(attempt)
        assert answer.accepted is counts
        if attempt.state == "expired":
            self.count["late" if counts else "overtaken"] += 1
        assert (answer.launch_id is not None) is (answer.accepted and failure in (None, "invalid_measurement"))
        if answer.accepted and failure is None:
            self.count["completed"] += 1
            self.model.complete(attempt)
        elif answer.accepted and failure is not None:
            self.count["invalid" if failure == "invalid_measurement" else "failed"] += 1
            self.model.burn(attempt, "failed", failure)

    def _beat(self, runner: ModelRunner, *, reborn: bool, draining: bool) -> None:
        if reborn:
            self.lives[runner.id] = RunnerLife(runner.id)
            self.count["restarted"] += any(a.runner is runner and a.state in LIVE for a in self.model.attempts.values())
        boot_id = self.lives[runner.id].boot_id
        enrol.heartbeat(
            self.ctx, runner.id, Heartbeat(agent_version="1", boot_id=boot_id, disk_free_bytes=1, draining=draining)
        )
        self.model.hear(runner, reborn=reborn)
        self.model.settle_runner(runner, draining=draining)

    def _pass(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds / 1000)
        self.model.now += milliseconds

    def _slot(self, pick: int) -> tuple[ModelRunner, str]:
        places = [(runner, slot) for runner in self.model.runners.values() for slot in runner.slots]
        return places[pick % len(places)]

    def _attempt(self, pick: int) -> ModelAttempt:
        """In one of four cases any attempt, in one an expired one without a result, and else a live one."""
        everyone = list(self.model.attempts.values())
        expired = [a for a in everyone if a.state == "expired" and a.result is None]
        live = [a for a in everyone if a.state in LIVE]
        some = (everyone, expired or everyone, live or everyone, live or everyone)[pick % 4]
        return some[(pick // 4) % len(some)]


@pytest.mark.timeout(1200)
def test_ten_thousand_random_steps_break_no_promise(ctx: Context, clock: SimulatedClock) -> None:
    shop = Workshop(ctx)
    shop.stock()
    good, bad = package(), package(good=2)
    count: Counter[str] = Counter()
    fixed = os.environ.get("CI") == "true"
    profile = settings(
        max_examples=STEPS * 12 // 10 // STEPS_EACH,  # not every example takes all of its steps
        stateful_step_count=STEPS_EACH,
        deadline=None,
        derandomize=fixed,
        database=None,
        phases=[Phase.generate] if fixed else [Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )

    def start() -> QueueMachine:
        return QueueMachine(shop, clock, good, bad, count)

    run_state_machine_as_test(cast(type[QueueMachine], start), settings=profile)
    assert count.pop("steps") >= STEPS
    print(f"{ctx.store.dialect}: {dict(count)}")
    assert min(count[what] for what in SITUATIONS) >= 10, count
