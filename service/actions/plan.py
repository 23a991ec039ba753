"""What a bisect measures next: one step for each that can go on.

A step is decided from stored rows alone, outside of any transaction, and written, with the jobs that it orders, in one
transaction that checks that no other step came first. So planners may race, and die at any moment: what is stored is
a whole step, or none.
"""

from dataclasses import asdict
from datetime import datetime
from typing import Any

from service.actions import outcomes, situation
from service.actions.context import Context
from service.actions.situation import ACCURACY, Situation
from service.actions.submit import job_seed
from service.contract import canonical
from service.contract.ids import new_id
from service.domain import bisect as engine
from service.domain.bisect import Decision, Evidence, Phase
from service.domain.states import BisectState, JobState, RequestState
from service.store import bisects, events, guards, requests
from service.store.engine import Session
from service.store.tables import Bisect, BisectStep, CellRow, Job, RequestRow

STATES = {
    Phase.ENDS: BisectState.CHECKING_ENDS,
    Phase.SEARCH: BisectState.SEARCHING,
    Phase.CONFIRM: BisectState.CONFIRMING,
}
_MAX_EVALUATIONS = 2
"""An accuracy that came out undefined is asked for once more, and then no more."""


def plan(ctx: Context) -> int:
    """Take one step for every bisect that can take one, oldest first; return how many steps were taken.

    A step follows a launch that ended, a build that turned out broken, or a slot that became free; where nothing of
    that happened nothing is done. A bisect whose step fails does not hold up the others: raises an ExceptionGroup of
    what went wrong once every other has been looked at.
    """
    with ctx.store.read() as session:
        ids = bisects.going_on(session)
    taken, errors = 0, []
    for bisect_id in ids:
        try:
            taken += _step(ctx, bisect_id)
        except Exception as error:  # noqa: BLE001
            error.add_note(f"while planning {bisect_id}")
            errors.append(error)
    if errors:
        raise ExceptionGroup(f"{len(errors)} of {len(ids)} bisects could not be planned", errors)
    return taken


def _step(ctx: Context, bisect_id: str) -> bool:
    now = ctx.clock.now()
    with ctx.store.read() as session:
        known = situation.read(session, bisect_id, now)
    if known is None or (known.fatal is None and known.seen == known.row.seen):
        return False
    if known.fatal is not None:
        return _fail(ctx, known, now, known.fatal)
    decision = engine.decide(known.evidence)
    if not _is_news(known, decision):
        with ctx.store.write() as session:
            bisects.see(session, known.row, known.seen)
        return False
    with ctx.store.write() as session:
        return _write(session, now, known, decision)


def _is_news(known: Situation, decision: Decision) -> bool:
    """Whether a decision is worth a step: it orders or ends something, or it is the first with this evidence."""
    if known.last is None or decision.orders or decision.finding is not None:
        return True
    before = situation.unpack(known.last.evidence)
    now = known.evidence
    return (before.outcomes, before.broken) != (now.outcomes, now.broken)


def _write(session: Session, at: datetime, known: Situation, decision: Decision) -> bool:
    request = guards.locked(session, RequestRow, known.request.id)
    row = guards.locked(session, Bisect, known.row.id)
    if request is None or row is None or row.last_step != known.row.last_step:
        return False
    orders = _orders(decision, known.evidence)
    step = BisectStep(
        id=new_id("stp"),
        bisect_id=row.id,
        number=row.last_step + 1,
        at=at,
        phase=decision.phase,
        evidence=situation.pack(known.evidence),
        orders=orders,
        picture=asdict(decision.picture),
        forecast=asdict(decision.forecast),
        reason=decision.sentence,
        slots=known.slots,
        slot_s=known.slot_s,
    )
    ending: dict[str, Any] = {}
    if decision.finding is not None:
        finding = _plain(decision.finding)
        ending = {"answer": finding["answer"], "finding": finding, "ended_at": at}
    if not bisects.add_step(session, row, step, known.seen, _state(row, decision), **ending):
        return False
    _order(session, at, row, request, orders)
    if decision.finding is not None:
        requests.move(session, at, request.id, RequestState.DONE)
        outcomes.cancel_open_jobs(session, at, request.id)
    return True


def _state(row: Bisect, decision: Decision) -> BisectState:
    if decision.finding is not None:
        return BisectState.ENDED
    return row.state if decision.phase is None else STATES[decision.phase]


def _fail(ctx: Context, known: Situation, at: datetime, reason: str) -> bool:
    with ctx.store.write() as session:
        request = guards.locked(session, RequestRow, known.request.id)
        row = guards.locked(session, Bisect, known.row.id)
        if request is None or row is None or not bisects.end(session, at, row, BisectState.FAILED, reason):
            return False
        requests.move(session, at, request.id, RequestState.FAILED, reason)
        outcomes.cancel_open_jobs(session, at, request.id)
    return True


def _order(session: Session, at: datetime, row: Bisect, request: RequestRow, orders: list[dict[str, Any]]) -> None:
    cell = guards.fresh(session, CellRow, request.cell_digest)
    if cell is None:
        raise LookupError(f"{request.id} refers to a cell that is not stored")
    builds = [node["build_ids"][0] for node in row.lineup]
    wanted = _Accuracy(session, row, request)
    rows = [
        Job(
            id=new_id("job"),
            request_id=request.id,
            build_id=builds[version],
            cell_digest=request.cell_digest,
            hardware=cell.hardware,
            build_kind=cell.body["recipe"]["build_kind"],
            block=order["block"],
            position=position,
            seed=job_seed(request.body["seed"], order["block"], position),
            state=JobState.QUEUED if position == 0 else JobState.WAITING,
            priority=request.body["priority"],
            evaluate=wanted.of(builds[version]),
            created_at=at,
        )
        for order in orders
        for position, version in enumerate(order["versions"])
    ]
    guards.insert(session, *rows)
    for job in rows:
        data = {"build_id": job.build_id, "block": job.block, "position": job.position}
        events.record(session, at, "job", job.id, job.state, request.id, **data)


class _Accuracy:
    """Which launches are to answer questions, too: every one if accuracy is searched for, else one for each build."""

    def __init__(self, session: Session, row: Bisect, request: RequestRow) -> None:
        self.always = row.metric == ACCURACY
        self.wanted = self.always or bool(request.body["gsm8k"])
        ids = [node["build_ids"][0] for node in row.lineup]
        self.asked = bisects.evaluated(session, request.cell_digest, ids, _MAX_EVALUATIONS)

    def of(self, build_id: str) -> bool:
        if not self.wanted:
            return False
        first = build_id not in self.asked
        self.asked.add(build_id)
        return self.always or first


def _plain(value: Any) -> dict[str, Any]:
    """A decision's part as JSON: enums and their keys become words, tuples lists."""
    return {
        key: {str(k): v for k, v in part.items()} if isinstance(part, dict) else part
        for key, part in asdict(value).items()
    }


def is_replayed(step: BisectStep) -> bool:
    """Return whether a stored step's evidence, decided again, comes to exactly what was stored."""
    evidence = situation.unpack(step.evidence)
    decision = engine.decide(evidence)
    again = [_orders(decision, evidence), asdict(decision.picture), asdict(decision.forecast), decision.sentence]
    return canonical.digest(again) == canonical.digest([step.orders, step.picture, step.forecast, step.reason])


def _orders(decision: Decision, evidence: Evidence) -> list[dict[str, Any]]:
    """The orders as they are stored: each a block of jobs, numbered on from the last."""
    return [{**_plain(order), "block": evidence.next_block + i} for i, order in enumerate(decision.orders)]
