"""What follows the end of an attempt: for its job, its slot, its block and its request, in one transaction.

Each raises Overtaken, so that nothing of it is kept, if the attempt stopped counting: it is not held under this fence
any more, or its job has a newer attempt or has ended.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from service.contract.errors import NotFound
from service.contract.failures import Failure, FailureClass
from service.contract.lease import AttemptState
from service.domain.retries import ELSEWHERE, OF_THE_BUILD, GiveUp, Retry, decide
from service.domain.states import JobState, RequestState
from service.store import attempts, guards, jobs, requests, runners
from service.store.engine import Session
from service.store.tables import Attempt, BuildRow, Job, RequestRow

_UNFINISHED = (JobState.ACTIVE, JobState.QUEUED)
"""Where the job of an attempt that still counts may be: queued again if its lease ran out."""


BISECT_KIND = "bisect"
"""The kind of requests whose jobs are ordered, and whose end is decided, by the planner (service.actions.plan)."""


class Overtaken(Exception):
    """The attempt does not count any more."""


@dataclass(frozen=True)
class Held:
    """An attempt with its job and request, locked."""

    request: RequestRow
    job: Job
    attempt: Attempt


def hold(session: Session, attempt_id: str) -> Held:
    """Lock an attempt's request, job and row, in this order; raises NotFound."""
    found = guards.fresh(session, Attempt, attempt_id)
    job = guards.fresh(session, Job, found.job_id) if found else None
    request = guards.locked(session, RequestRow, job.request_id) if job else None
    job = guards.locked(session, Job, job.id) if job else None
    attempt = guards.locked(session, Attempt, attempt_id)
    if attempt is None or job is None or request is None:
        raise NotFound(f"There is no attempt {attempt_id!r}.")
    return Held(request, job, attempt)


def complete(session: Session, at: datetime, held: Held, fence: int, **values: Any) -> None:
    """The attempt yielded a launch: its job is done, the next of its block is queued, the request may have ended."""
    _end(session, at, held, fence, AttemptState.COMPLETED, late=held.attempt.state is AttemptState.EXPIRED, **values)
    _check(jobs.move(session, at, held.job, fence, JobState.DONE, among=_UNFINISHED, not_before_at=None))
    following = jobs.next_of_block(session, held.job)
    if following is not None:
        _check(jobs.move(session, at, following, following.fence, JobState.QUEUED, among=(JobState.WAITING,)))
    settle(session, at, held.request)


def burn(
    session: Session,
    at: datetime,
    held: Held,
    fence: int,
    target: AttemptState,
    failure: Failure,
    *,
    also: Sequence[guards.Predicate] = (),
    **values: Any,
) -> None:
    """The attempt failed or expired: its job is queued again, or fails for good, or is cancelled if that was asked."""
    late = held.attempt.state is AttemptState.EXPIRED
    before = attempts.burned(session, held.job.id)
    if late:
        before[FailureClass.RUNNER_LOST] -= 1  # this very attempt, which turns out to have ended otherwise
    detail = failure.model_dump(mode="json")
    _end(session, at, held, fence, target, also=also, note=detail, failure=detail, late=late, **values)
    if _is_cancelled(held):
        _cancel(session, at, held, fence)
        return
    decision = decide(failure.failure_class, before, before.total() + 1)
    if isinstance(decision, GiveUp):
        _give_up(session, at, held, fence, failure, decision)
    else:
        _retry(session, at, held, fence, failure, decision)


def give_back(session: Session, at: datetime, held: Held, fence: int, reason: str) -> None:
    """The runner gave a live attempt back: nothing is burned, and its job is queued or cancelled at once."""
    cancelled = _is_cancelled(held)
    target = AttemptState.CANCELLED if cancelled else AttemptState.RELEASED
    _end(session, at, held, fence, target, note={"reason": reason})
    if cancelled:
        _cancel(session, at, held, fence)
    else:
        _check(jobs.move(session, at, held.job, fence, JobState.QUEUED, among=(JobState.ACTIVE,), not_before_at=None))


def cancel_open_jobs(session: Session, at: datetime, request_id: str) -> None:
    """Cancel a request's jobs that have not begun, and ask for the end of those that run."""
    for job in jobs.of_request(session, request_id, lock=True):
        if job.state in (JobState.WAITING, JobState.QUEUED):
            jobs.move(session, at, job, job.fence, JobState.CANCELLED)
        elif job.state is JobState.ACTIVE:
            jobs.flag_cancel(session, at, job)


def settle(session: Session, at: datetime, request: RequestRow) -> None:
    """End a request whose jobs have all ended: done if every one is done, or else cancelled.

    That of a bisect only if it was cancelled: otherwise its planner may order more, and says when it has ended.
    """
    if request.kind == BISECT_KIND and not _flagged(session, request):
        return
    counts = requests.count_jobs(session, [request.id])[request.id]
    if any(counts.get(state, 0) for state in (JobState.WAITING, JobState.QUEUED, JobState.ACTIVE)):
        return
    done = set(counts) == {JobState.DONE.value}
    requests.move(session, at, request.id, RequestState.DONE if done else RequestState.CANCELLED)


def _end(session: Session, at: datetime, held: Held, fence: int, target: AttemptState, **values: Any) -> None:
    """End the attempt and free its slot."""
    _check(attempts.move(session, at, held.attempt, fence, target, request_id=held.request.id, **values))
    runners.free(session, at, held.attempt.slot_id, held.attempt.id)


def _check(moved: bool) -> None:
    if not moved:
        raise Overtaken


def _is_cancelled(held: Held) -> bool:
    return held.job.cancel_requested or held.request.cancel_requested


def _cancel(session: Session, at: datetime, held: Held, fence: int) -> None:
    _check(jobs.move(session, at, held.job, fence, JobState.CANCELLED, among=_UNFINISHED))
    settle(session, at, held.request)


def _flagged(session: Session, request: RequestRow) -> bool:
    row = guards.fresh(session, RequestRow, request.id)
    return row is not None and row.cancel_requested


def _retry(session: Session, at: datetime, held: Held, fence: int, failure: Failure, decision: Retry) -> None:
    values: dict[str, Any] = {"not_before_at": at + timedelta(seconds=decision.delay_s) if decision.delay_s else None}
    slot_id = held.attempt.slot_id
    if failure.failure_class in ELSEWHERE and has_other_slot(session, held.job, slot_id):
        values |= {"slot_id": None, "avoided_slot_id": slot_id}  # what waits in its block follows when it is claimed
    if held.job.state is JobState.QUEUED:  # queued again when the lease ran out; now it is known what happened
        _check(jobs.postpone(session, held.job, fence, **values))
        return
    note = {"delay_s": decision.delay_s, "avoided_slot_id": values.get("avoided_slot_id")}
    _check(jobs.move(session, at, held.job, fence, JobState.QUEUED, among=(JobState.ACTIVE,), note=note, **values))


def has_other_slot(session: Session, job: Job, slot_id: str) -> bool:
    """Return whether a runner that takes work could run a job on another slot than this one."""
    able = runners.serving(session, job.hardware, job.build_kind)
    return any(slot.id != slot_id for slot in runners.slots(session, [runner.id for runner in able]))


def _give_up(session: Session, at: datetime, held: Held, fence: int, failure: Failure, decision: GiveUp) -> None:
    detail = failure.model_dump(mode="json")
    note = {**detail, "reason": decision.reason}
    _check(jobs.move(session, at, held.job, fence, JobState.FAILED, among=_UNFINISHED, note=note, failure=detail))
    if held.request.kind == BISECT_KIND:
        _go_on(session, at, held, failure)
        return
    build = guards.fresh(session, BuildRow, held.job.build_id)
    name = build.name if build else held.job.build_id
    reason = f"{name} could not be measured: {failure.failure_class} in {failure.step} ({decision.reason}): "
    if requests.move(session, at, held.request.id, RequestState.FAILED, reason + failure.message):
        cancel_open_jobs(session, at, held.request.id)


def _go_on(session: Session, at: datetime, held: Held, failure: Failure) -> None:
    """A bisect does without the launch, and without the others of a build that can't be measured; blocks go on."""
    held_back = {held.job.block: held.job}
    rows = jobs.of_request(session, held.request.id, lock=True)
    if failure.failure_class in OF_THE_BUILD:
        for job in rows:
            if job.build_id == held.job.build_id and job.state in (JobState.WAITING, JobState.QUEUED):
                jobs.move(session, at, job, job.fence, JobState.CANCELLED)
                if job.state is JobState.QUEUED:
                    held_back[job.block] = job
    for job in held_back.values():
        following = jobs.next_of_block(session, job)
        if following is not None:
            jobs.move(session, at, following, following.fence, JobState.QUEUED, among=(JobState.WAITING,))
    settle(session, at, held.request)
