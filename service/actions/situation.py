"""What a bisect knows: stored rows become the evidence of service.domain.bisect. Nothing is decided here."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter

from service.actions.pictures import evaluation_view
from service.contract import canonical
from service.contract.failures import Failure, FailureClass
from service.domain.bisect import Aim, Evidence, Outcome, Pending, Phase
from service.domain.retries import OF_THE_BUILD
from service.domain.states import JobState
from service.ruler.validity import Validity
from service.store import attempts, bisects, evaluations, guards, jobs, launches, runners
from service.store.engine import Session
from service.store.tables import Attempt, Bisect, BisectStep, CellRow, Job, Launch, RequestRow

ACCURACY = "gsm8k"
"""The metric that is no metric of the ruler: the share of questions that were answered correctly."""
MAX_LOST_JOBS = 3
"""So many launches that failed for good through no fault of their build end a bisect: it would never get on."""
_OPEN = (JobState.WAITING, JobState.QUEUED, JobState.ACTIVE)
_EVIDENCE = TypeAdapter(Evidence)
_AIM = TypeAdapter(Aim)


@dataclass(frozen=True)
class Situation:
    """A bisect's rows as they were at one moment, and the evidence in them.

    ``seen`` is a hash of everything in the evidence that a decision may depend on. ``fatal`` says why the bisect can't
    go on, if it can't. ``slots`` is how many there are, at least one; ``slot_s`` the time that its attempts occupied
    slots so far.
    """

    row: Bisect
    request: RequestRow
    last: BisectStep | None
    evidence: Evidence
    seen: str
    fatal: str | None
    slots: int
    slot_s: float


def read(session: Session, bisect_id: str, at: datetime) -> Situation | None:
    """Return the situation of a bisect; None if there is no such bisect."""
    row = guards.fresh(session, Bisect, bisect_id)
    request = guards.fresh(session, RequestRow, row.request_id) if row else None
    if row is None or request is None:
        return None
    cell = guards.fresh(session, CellRow, request.cell_digest)
    if cell is None:
        raise LookupError(f"{request.id} refers to a cell that is not stored")
    own = jobs.of_request(session, request.id)
    found = launches.of_jobs(session, [job.id for job in own])
    tries = attempts.of_jobs(session, [job.id for job in own])
    index = {build_id: i for i, node in enumerate(row.lineup) for build_id in node["build_ids"]}
    phases = bisects.phases(session, bisect_id)
    values = launch_values(session, row, found)
    slots, free = slots_for(session, request, cell)
    evidence = Evidence(
        names=tuple(node["name"] for node in row.lineup),
        outcomes=tuple(
            Outcome(index[one.build_id], values[one.id], Phase(phases[one.block]), one.block, one.position, one.slot_id)
            for one in found
        ),
        pending=tuple(
            Pending(index[job.build_id], Phase(phases[job.block]), job.block) for job in own if job.state in _OPEN
        ),
        broken=frozenset(index[build_id] for build_id in broken(own, values, found)),
        free_slots=free,
        aim=aim_of(row),
        cost_s=_cost_s(tries, {one.attempt_id for one in found}),
        next_block=max((job.block for job in own), default=-1) + 1,
    )
    return Situation(
        row=row,
        request=request,
        last=bisects.last_steps(session, [bisect_id]).get(bisect_id),
        evidence=evidence,
        seen=canonical.digest(pack(evidence)),
        fatal=_fatal(own),
        slots=slots,
        slot_s=slot_seconds(tries, at),
    )


def pack(evidence: Evidence) -> dict[str, Any]:
    """Return evidence as JSON; ``unpack`` gives exactly the same evidence back."""
    found: dict[str, Any] = _EVIDENCE.dump_python(evidence, mode="json")
    return found | {"broken": sorted(evidence.broken)}


def unpack(stored: dict[str, Any]) -> Evidence:
    """Return evidence from its JSON."""
    return _EVIDENCE.validate_python(stored)


def aim_of(row: Bisect) -> Aim:
    """Return what a bisect was asked."""
    return _AIM.validate_python({key: value for key, value in row.aim.items() if key != ACCURACY})


def launch_values(session: Session, row: Bisect, found: Sequence[Launch]) -> dict[str, float | None]:
    """Return the value that each launch gives, by its id: None for one that is invalid or has no positive value.

    An accuracy counts though the launch's speed does not: another repetition says nothing about an answer.
    """
    if row.metric == ACCURACY:
        asked = evaluations.of_launches(session, {one.id for one in found})
        scores = {key: evaluation_view(one).strict for key, one in asked.items()}
    else:
        scores = {one.id: one.metrics.get(row.metric) for one in found if one.validity != Validity.INVALID}
    return {one.id: scores.get(one.id) or None for one in found}


def broken(own: Sequence[Job], values: dict[str, float | None], found: Sequence[Launch]) -> dict[str, Failure]:
    """Return the builds that can't be measured, each with why.

    One that failed for good, by its own fault, is broken; but one that was measured before must fail so twice.
    """
    measured = {one.build_id for one in found if values[one.id] is not None}
    failures: dict[str, list[Failure]] = {}
    for job in own:
        if job.state is JobState.FAILED and job.failure is not None:
            failure = Failure.model_validate(job.failure)
            if failure.failure_class in OF_THE_BUILD:
                failures.setdefault(job.build_id, []).append(failure)
    return {key: each[-1] for key, each in failures.items() if len(each) > (key in measured)}


def slot_seconds(tries: Sequence[Attempt], at: datetime) -> float:
    """Return how long attempts occupied slots, those that go on included."""
    return sum(((one.ended_at or at) - one.created_at).total_seconds() for one in tries)


def slots_for(session: Session, request: RequestRow, cell: CellRow) -> tuple[int, int]:
    """Return how many slots there are, and how many orders may be placed now so that each finds one that nobody else
    waits for.

    A block takes one slot from its first launch to its last. Blocks of other requests count unless the bisect goes
    before them; what runs on a slot counts in any case. No slot at all counts as one, so that one order waits.
    """
    kind = cell.body["recipe"]["build_kind"]
    able = runners.serving(session, cell.hardware, kind)
    there = {slot.id for slot in runners.slots(session, [runner.id for runner in able])}
    paused = bisects.paused_requests(session)
    mine, taken, waiting = set(), set(), set()
    for job in jobs.unfinished(session):
        block = (job.request_id, job.block)
        if job.request_id == request.id:
            mine.add(block)
        elif job.state is JobState.ACTIVE and job.slot_id in there:
            taken.add(block)
        elif job.request_id in paused or job.priority < request.body["priority"]:
            continue
        elif (job.hardware, job.build_kind) == (cell.hardware, kind):
            waiting.add(block)
    slots = max(1, len(there))
    return slots, max(0, slots - len(mine) - len(taken | waiting))


def _fatal(own: Sequence[Job]) -> str | None:
    lost = [
        Failure.model_validate(job.failure)
        for job in own
        if job.state is JobState.FAILED
        and job.failure is not None
        and FailureClass(job.failure["failure_class"]) not in OF_THE_BUILD
    ]
    if len(lost) < MAX_LOST_JOBS:
        return None
    last = lost[-1]
    return f"{len(lost)} launches failed for good and not by their builds; the last: {last.failure_class} in " + (
        f"{last.step}: {last.message}"
    )


def _cost_s(tries: Sequence[Attempt], with_launch: set[str]) -> float | None:
    """The mean time that a launch took, from its lease to its result."""
    took = [
        (one.ended_at - one.created_at).total_seconds()
        for one in tries
        if one.ended_at is not None and one.id in with_launch
    ]
    return sum(took) / len(took) if took else None
