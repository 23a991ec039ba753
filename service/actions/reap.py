"""What time alone brings about: leases run out, runners are missed, jobs stop waiting for a slot that is gone."""

from datetime import datetime, timedelta

from service.actions import outcomes, presence
from service.actions.context import Context
from service.contract.lease import AttemptState
from service.domain.states import RunnerState
from service.store import attempts, events, guards, jobs, runners
from service.store.engine import Session
from service.store.tables import Job, Runner

_GONE = (RunnerState.LOST, RunnerState.OFFLINE, RunnerState.REVOKED, RunnerState.DRAINING)
"""Runners in these states take no new work."""


def reap(ctx: Context) -> int:
    """Expire overdue attempts, mark silent runners, loosen ties to slots of runners that are gone; return how many.

    Safe to run at any time and by several at once: every change repeats the condition that it was decided by.
    """
    return _expire(ctx) + _miss(ctx) + _loosen(ctx) + _stop_avoiding(ctx)


def _expire(ctx: Context) -> int:
    now = ctx.clock.now()
    with ctx.store.read() as session:
        overdue = attempts.overdue(session, now)
    return sum(_expire_one(ctx, attempt_id, now) for attempt_id in overdue)


def _expire_one(ctx: Context, attempt_id: str, now: datetime) -> bool:
    try:
        with ctx.store.write() as session:
            held = outcomes.hold(session, attempt_id)
            late_s = (now - held.attempt.lease_until_at).total_seconds()
            failure = presence.lost(held.attempt.step, f"the lease was not renewed, and ran out {late_s:.1f} s ago")
            fence, expired = held.attempt.fence, AttemptState.EXPIRED
            outcomes.burn(session, now, held, fence, expired, failure, also=[attempts.still_overdue(now)])
    except outcomes.Overtaken:
        return False  # it was renewed, or ended, since it was read
    return True


def _miss(ctx: Context) -> int:
    now = ctx.clock.now()
    horizon = now - timedelta(seconds=ctx.settings.lost_after_s)
    with ctx.store.read() as session:
        present = [r for r in runners.everyone(session) if r.state in (RunnerState.ONLINE, RunnerState.DRAINING)]
        silent = [r for r in present if r.last_seen_at is not None and r.last_seen_at < horizon]
    return sum(_miss_one(ctx, runner, now, horizon) for runner in silent)


def _miss_one(ctx: Context, runner: Runner, now: datetime, horizon: datetime) -> bool:
    # One that drained and fell silent ended as it should.
    target = RunnerState.OFFLINE if runner.state is RunnerState.DRAINING else RunnerState.LOST
    with ctx.store.write() as session:
        if attempts.live_of_runner(session, runner.id):
            return False  # it renews a lease, or did so less than a lease ago: that is a sign of life, too
        return runners.silence(session, now, runner, target, horizon)


def _loosen(ctx: Context) -> int:
    now = ctx.clock.now()
    with ctx.store.read() as session:
        gone = [runner for runner in runners.everyone(session) if runner.state in _GONE]
    return sum(_loosen_from(ctx, runner, now) for runner in gone)


def _loosen_from(ctx: Context, runner: Runner, now: datetime) -> int:
    with ctx.store.write() as session:
        since = _since(session, runner)
        row = guards.locked(session, Runner, runner.id)
        if row is None or row.state is not runner.state:
            return 0
        if since is None or now - since <= timedelta(seconds=ctx.settings.lease_ttl_s):
            return 0
        slot_ids = [slot.id for slot in runners.slots(session, [runner.id])]
        return sum(jobs.loosen(session, now, job) for job in jobs.tied(session, slot_ids))


def _stop_avoiding(ctx: Context) -> int:
    """A job that avoids a slot waits for another one; when there is none any more it must make do with that one."""
    with ctx.store.read() as session:
        stuck = [job for job in jobs.avoiding(session) if _is_stuck(session, job)]
    if not stuck:
        return 0
    now = ctx.clock.now()
    with ctx.store.write() as session:
        return sum(jobs.stop_avoiding(session, now, job) for job in stuck if _is_stuck(session, job))


def _is_stuck(session: Session, job: Job) -> bool:
    return job.avoided_slot_id is not None and not outcomes.has_other_slot(session, job, job.avoided_slot_id)


def _since(session: Session, runner: Runner) -> datetime | None:
    """When a runner came into the state that it is in."""
    rows = events.of_subject(session, "runner", runner.id, [f"runner.{runner.state}"])
    return rows[-1].at if rows else None
