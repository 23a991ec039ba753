"""The fence is what keeps an overtaken attempt from writing: without it, anywhere, something here breaks.

Each behaviour is checked twice: it holds, and it stops to hold when the fence is not compared where it is named.
"""

import ast
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import ColumnElement, true
from sqlmodel import Session

import service.store
from service.actions import attempts as act
from service.actions import events, launches, reap
from service.contract import canonical
from service.contract.errors import LeaseLost
from service.contract.failures import FailureClass
from service.contract.lease import AttemptState, Lease, Release, ReleaseReason, Renewal
from service.domain.states import JobState
from service.store import attempts, guards, jobs
from service.store.tables import Job
from tests.clocks import SimulatedClock
from tests.workshop import RunnerLife, Workshop, package

Behaviour = Callable[[Workshop, RunnerLife], None]


def _leased(shop: Workshop, runner: RunnerLife) -> Lease:
    shop.submit()
    return shop.work(runner)


def _refused(shop: Workshop, leased: Lease, call: Callable[[int], object]) -> None:
    """A call under a greater and a smaller fence raises LeaseLost and leaves no trace."""
    before = _trace(shop, leased)
    for fence in (leased.fence + 1, leased.fence - 1):
        with pytest.raises(LeaseLost):
            call(fence)
    assert _trace(shop, leased) == before


def _trace(shop: Workshop, leased: Lease) -> tuple[object, ...]:
    files = sorted(path.name for path in shop.ctx.blobs.root.rglob("*") if path.is_file())
    log = act.read_log(shop.ctx, leased.attempt_id)
    return (shop.job(leased), len(events.list_events(shop.ctx, limit=1000)), files, log)


def renew(shop: Workshop, runner: RunnerLife) -> None:
    leased = _leased(shop, runner)
    said = {"state": AttemptState.SERVING, "step": "start"}
    _refused(shop, leased, lambda f: act.renew(shop.ctx, leased.attempt_id, Renewal(fence=f, **said)))


def renew_again(shop: Workshop, runner: RunnerLife) -> None:
    leased = _leased(shop, runner)
    said = Renewal(fence=leased.fence, state=AttemptState.SERVING, step="start")
    act.renew(shop.ctx, leased.attempt_id, said)
    _refused(
        shop,
        leased,
        lambda f: act.renew(shop.ctx, leased.attempt_id, said.model_copy(update={"fence": f, "step": "x"})),
    )


def append_log(shop: Workshop, runner: RunnerLife) -> None:
    leased = _leased(shop, runner)
    _refused(shop, leased, lambda f: act.append_log(shop.ctx, leased.attempt_id, f, 0, b"a line\n"))


def put_artifact(shop: Workshop, runner: RunnerLife) -> None:
    leased = _leased(shop, runner)
    data = b"bytes"
    digest = canonical.digest_bytes(data)
    _refused(shop, leased, lambda f: act.put_artifact(shop.ctx, leased.attempt_id, f, "a.raw", digest, data))


def put_result(shop: Workshop, runner: RunnerLife) -> None:
    leased = _leased(shop, runner)
    shop.upload(leased, package())
    _refused(shop, leased, lambda f: act.put_result(shop.ctx, leased.attempt_id, package().result(f)))


def put_failure(shop: Workshop, runner: RunnerLife) -> None:
    leased = _leased(shop, runner)
    wrong = leased.model_copy(update={"fence": leased.fence + 1})
    _refused(shop, leased, lambda f: shop.fail(wrong.model_copy(update={"fence": f}), FailureClass.SERVER_START))


def release(shop: Workshop, runner: RunnerLife) -> None:
    leased = _leased(shop, runner)
    drain = ReleaseReason.DRAIN
    _refused(shop, leased, lambda f: act.release(shop.ctx, leased.attempt_id, Release(fence=f, reason=drain)))


def _overtaken(shop: Workshop, runner: RunnerLife) -> Lease:
    """An expired attempt whose job was leased again, given back, and waits in the queue."""
    leased = _leased(shop, runner)
    clock = shop.ctx.clock
    assert isinstance(clock, SimulatedClock)
    clock.advance(shop.ctx.settings.lease_ttl_s + 1)
    reap.reap(shop.ctx)
    newer = shop.work(runner)
    act.release(shop.ctx, newer.attempt_id, Release(fence=newer.fence, reason=ReleaseReason.DRAIN))
    assert shop.job(newer).state is JobState.QUEUED
    return leased


def overtaken_launch(shop: Workshop, runner: RunnerLife) -> None:
    leased = _overtaken(shop, runner)
    assert not shop.finish(leased).accepted
    assert shop.job(leased).state is JobState.QUEUED
    assert launches.list_launches(shop.ctx) == []


def overtaken_failure(shop: Workshop, runner: RunnerLife) -> None:
    leased = _overtaken(shop, runner)
    assert not shop.fail(leased, FailureClass.DISK_FULL).accepted
    assert shop.job(leased).not_before_at is None


def orphan(shop: Workshop, runner: RunnerLife) -> None:
    leased = _overtaken(shop, runner)
    with shop.ctx.store.write() as session:
        assert not attempts.keep_orphan(session, leased.attempt_id, leased.fence + 1, "0" * 64)


def _stale(shop: Workshop, runner: RunnerLife, state: JobState, change: Callable[[Session, Job], bool]) -> None:
    """A change decided on a job as it was before its newest attempt is not made."""
    leased = _leased(shop, runner)
    if state is JobState.QUEUED:
        act.release(shop.ctx, leased.attempt_id, Release(fence=leased.fence, reason=ReleaseReason.DRAIN))
    with shop.ctx.store.read() as session:
        seen = guards.fresh(session, Job, leased.job_id)
    assert seen is not None
    assert seen.state is state
    if state is JobState.ACTIVE:
        act.release(shop.ctx, leased.attempt_id, Release(fence=leased.fence, reason=ReleaseReason.DRAIN))
    newer = shop.work(runner)
    if state is JobState.QUEUED:
        act.release(shop.ctx, newer.attempt_id, Release(fence=newer.fence, reason=ReleaseReason.DRAIN))
    with shop.ctx.store.write() as session:
        assert not change(session, seen)


def stale_loosening(shop: Workshop, runner: RunnerLife) -> None:
    _stale(shop, runner, JobState.QUEUED, lambda session, job: jobs.loosen(session, shop.ctx.clock.now(), job))


def stale_avoidance(shop: Workshop, runner: RunnerLife) -> None:
    _stale(shop, runner, JobState.QUEUED, lambda session, job: jobs.stop_avoiding(session, shop.ctx.clock.now(), job))


def stale_cancel(shop: Workshop, runner: RunnerLife) -> None:
    _stale(shop, runner, JobState.ACTIVE, lambda session, job: jobs.flag_cancel(session, shop.ctx.clock.now(), job))


BEHAVIOURS: list[tuple[str, Behaviour]] = [
    ("attempts.held", renew),
    ("attempts.held", renew_again),
    ("attempts.held", append_log),
    ("attempts.held", put_artifact),
    ("attempts.held", put_result),
    ("attempts.held", put_failure),
    ("attempts.held jobs.move", release),
    ("jobs.move", overtaken_launch),
    ("jobs.postpone", overtaken_failure),
    ("attempts.keep_orphan", orphan),
    ("jobs.loosen", stale_loosening),
    ("jobs.stop_avoiding", stale_avoidance),
    ("jobs.flag_cancel", stale_cancel),
]
"""Where the fence is compared (a release is refused at two places), and what holds because of it."""

each = pytest.mark.parametrize(("place", "behaviour"), BEHAVIOURS, ids=[b.__name__ for _, b in BEHAVIOURS])


@each
def test_it_holds(workshop: Workshop, runner: RunnerLife, place: str, behaviour: Behaviour) -> None:
    behaviour(workshop, runner)


@each
def test_it_breaks_without_the_fence(
    workshop: Workshop, runner: RunnerLife, place: str, behaviour: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = guards.fenced
    skipped = 0

    def fenced(column: Any, fence: int) -> ColumnElement[bool]:
        nonlocal skipped
        caller = sys._getframe(1)
        here = f"{caller.f_globals['__name__'].rsplit('.', 1)[1]}.{caller.f_code.co_name}"
        if here not in place.split():
            return compared(column, fence)
        skipped += 1
        return true()

    monkeypatch.setattr(guards, "fenced", fenced)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        behaviour(workshop, runner)
    assert skipped > 0


def test_every_place_that_compares_the_fence_has_its_behaviour() -> None:
    assert {place for places, _ in BEHAVIOURS for place in places.split()} == {
        f"{module}.{name}" for module, tree in _store() for name in _callers(tree, "fenced")
    }


def test_every_guarded_update_of_a_job_or_an_attempt_compares_the_fence() -> None:
    checked = 0
    for module, tree in _store():
        for call in ast.walk(tree):
            if not (
                isinstance(call, ast.Call) and ast.unparse(call.func).endswith("update_one") and len(call.args) > 1
            ):
                continue
            if ast.unparse(call.args[1]) in ("Job", "Attempt"):
                checked += 1
                text = ast.unparse(call)
                assert "guards.fenced(" in text or "held(" in text, f"{module}, line {call.lineno}"
    assert checked >= 6


def test_jobs_and_attempts_are_changed_by_guarded_updates_alone() -> None:
    """But for handing a job out, which is what makes the fence grow, and the slot that a block is tied to."""
    found = {
        f"{module}.{name}"
        for module, tree in _store()
        for name in _callers(tree, "update")
        if module not in ("guards", "tables")
    }
    assert found == {"jobs.claim", "jobs.tie"}


def _store() -> list[tuple[str, ast.Module]]:
    directory = Path(str(service.store.__file__)).parent
    return [(path.stem, ast.parse(path.read_text())) for path in sorted(directory.glob("*.py"))]


def _callers(tree: ast.Module, callee: str) -> set[str]:
    return {
        function.name
        for function in tree.body
        if isinstance(function, ast.FunctionDef) and function.name != callee
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and ast.unparse(call.func).rsplit(".", 1)[-1] == callee
    }
