"""From a bisect's rows to its views."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from service.actions import accuracy, situation
from service.actions.bisect_versions import Measured, version_views
from service.actions.bisect_views import (
    AimView,
    BisectSummary,
    BisectView,
    FindingView,
    ForecastView,
    OrderView,
    PairView,
    PictureView,
    ShareView,
    SkippedView,
    StepView,
)
from service.actions.comparison_views import CellSummary
from service.actions.pictures import build_view, evaluation_view
from service.actions.requests import job_views
from service.actions.sentences import marks
from service.actions.situation import ACCURACY
from service.actions.views import BuildView, EvaluationView
from service.contract.builds import BuildKind
from service.contract.cells import Cell
from service.domain.bisect import Answer, Evidence, Phase
from service.domain.states import JobState
from service.ruler.metrics import METRICS
from service.store import attempts, bisects, catalog, evaluations, jobs, launches, requests
from service.store.engine import Session
from service.store.tables import Bisect, BisectStep, BuildRow, RequestRow

AT_ONCE = 2
"""A bisect seldom has more than two orders out: the two blocks of the proof, or probes on two slots."""
_OPEN = (JobState.WAITING, JobState.QUEUED, JobState.ACTIVE)


def bisect_summaries(session: Session, rows: Sequence[Bisect], at: datetime) -> list[BisectSummary]:
    """Return bisects as they stand in a list."""
    owners = requests.some_of(session, {row.request_id for row in rows})
    cells = catalog.cells(session, {owner.cell_digest for owner in owners.values()})
    ids = {owner.body[side] for owner in owners.values() for side in ("base_id", "head_id")}
    builds = {key: build_view(row) for key, row in catalog.some_of(session, BuildRow, ids).items()}
    last = bisects.last_steps(session, [row.id for row in rows])
    counts = requests.count_jobs(session, list(owners))
    tries = attempts.of_requests(session, list(owners))
    launched = launches.count(session, list(owners))
    return [
        BisectSummary(
            **_own(row, owner, builds, Cell.model_validate(cells[owner.cell_digest].body), last.get(row.id)),
            launches_done=launched[owner.id],
            launches_pending=sum(counts[owner.id].get(state, 0) for state in _OPEN),
            slot_minutes=situation.slot_seconds(tries[owner.id], at) / 60,
        )
        for row in rows
        for owner in [owners[row.request_id]]
    ]


def bisect_view(session: Session, row: Bisect, at: datetime) -> BisectView:
    """Return everything about a bisect."""
    summary = bisect_summaries(session, [row], at)[0]
    steps = step_views(session, row)
    own = jobs.of_request(session, row.request_id)
    found = launches.of_jobs(session, [job.id for job in own])
    ids = {build_id for node in row.lineup for build_id in node["build_ids"]}
    builds = {key: build_view(one) for key, one in catalog.some_of(session, BuildRow, ids).items()}
    values = situation.launch_values(session, row, found)
    measured = Measured(
        metric=row.metric,
        launches=found,
        values=values,
        phases={block: Phase(phase) for block, phase in bisects.phases(session, row.id).items()},
        failures=situation.broken(own, values, found),
        evaluations=_evaluations(session, summary.cell.digest, ids),
    )
    return BisectView(
        **dict(summary),
        aim=AimView(**row.aim),
        lineup=version_views(row, measured, builds),
        steps=steps,
        picture=steps[-1].picture if steps else None,
        forecast=steps[-1].forecast if steps else None,
        finding=_finding(row, measured, summary.marks),
        jobs=job_views(session, own),
    )


def step_views(session: Session, row: Bisect) -> list[StepView]:
    """Return a bisect's steps in order."""
    names = [node["name"] for node in row.lineup]
    return [_step(step, names) for step in bisects.steps(session, row.id)]


def _step(step: BisectStep, names: Sequence[str]) -> StepView:
    evidence = situation.unpack(step.evidence)
    return StepView(
        number=step.number,
        at=step.at,
        phase=None if step.phase is None else Phase(step.phase),
        orders=[OrderView(**order, builds=[names[version] for version in order["versions"]]) for order in step.orders],
        reason=step.reason,
        picture=PictureView(
            none=step.picture["none"],
            steps=[
                ShareView(last_good=before, first_bad=after, probability=probability)
                for before, after, probability in zip(names, names[1:], step.picture["steps"], strict=False)
            ],
        ),
        forecast=ForecastView(**step.forecast, minutes=_minutes(step, evidence)),
        launches_done=len(evidence.outcomes),
        launches_pending=len(evidence.pending) + sum(len(order["versions"]) for order in step.orders),
        slot_minutes=step.slot_s / 60,
    )


def _minutes(step: BisectStep, evidence: Evidence) -> float | None:
    """How long the launches still expected take, one or two at a time; None before the first has ended."""
    if evidence.cost_s is None:
        return None
    return float(step.forecast["launches"]) * evidence.cost_s / 60 / min(step.slots, AT_ONCE)


def _own(
    row: Bisect, owner: RequestRow, builds: dict[str, BuildView], cell: Cell, last: BisectStep | None
) -> dict[str, Any]:
    summary = CellSummary(
        digest=owner.cell_digest,
        recipe=owner.body["recipe"],
        workload=owner.body["workload"],
        hardware=cell.hardware,
        simulated=cell.recipe.build_kind is BuildKind.SIMULATED,
        time_compression=cell.recipe.time_compression,
        ruler_version=cell.ruler_version,
    )
    known = METRICS.get(row.metric)
    return {
        "id": row.id,
        "request_id": row.request_id,
        "state": row.state,
        "answer": None if row.answer is None else Answer(row.answer),
        "reason": row.reason,
        "paused": row.paused,
        "cancel_requested": owner.cancel_requested,
        "submitter": owner.submitter,
        "metric": row.metric,
        "label": known.label if known else ACCURACY,
        "unit": known.unit if known else "",
        "good": builds[owner.body["base_id"]],
        "bad": builds[owner.body["head_id"]],
        "versions": len(row.lineup),
        "cell": summary,
        "marks": marks(summary),
        "sentence": row.reason or (last.reason if last else "Nothing is measured yet."),
        "seed": owner.body["seed"],
        "priority": owner.body["priority"],
        "created_at": row.created_at,
        "ended_at": row.ended_at,
    }


def _finding(row: Bisect, measured: Measured, mark: str) -> FindingView | None:
    stored = row.finding
    if stored is None:
        return None
    names = [node["name"] for node in row.lineup]
    pair = {stored["last_good"], stored["first_bad"]}
    at = {build_id: i for i, node in enumerate(row.lineup) for build_id in node["build_ids"]}
    kept = ("ratio", "low", "high", "confidence", "ends_ratio", "ends_low", "ends_high", "launches", "sentence")
    return FindingView(
        **{key: stored[key] for key in kept},
        answer=Answer(stored["answer"]),
        last_good=None if stored["last_good"] is None else names[stored["last_good"]],
        first_bad=None if stored["first_bad"] is None else names[stored["first_bad"]],
        candidates=[PairView(last_good=names[i], first_bad=names[i + 1]) for i in stored["candidates"]],
        skipped=[SkippedView(name=names[i], why=measured.why(row.lineup[i]["build_ids"])) for i in stored["skipped"]],
        confirmation=[
            one.id
            for one in measured.launches
            if measured.phases[one.block] is Phase.CONFIRM
            and at[one.build_id] in pair
            and measured.values[one.id] is not None
        ],
        accuracy=_accuracy(row, measured, mark),
    )


def _accuracy(row: Bisect, measured: Measured, mark: str) -> str:
    """The sentence on accuracy, of the two neighbours or, where no pair was found, of the two ends.

    A bisect by accuracy has it too: launches that give the same answers say nothing about how few questions there were.
    """
    stored = row.finding or {}
    if not row.aim[ACCURACY]:
        return ""
    pair = stored["last_good"], stored["first_bad"]
    one, other = (row.lineup[i] for i in (pair if None not in pair else (0, -1)))
    sides = measured.answers(one["build_ids"]), measured.answers(other["build_ids"])
    found = accuracy.accuracy_of(sides, (one["name"], other["name"]), mark)
    return found.sentence if found else ""


def _evaluations(session: Session, cell_digest: str, build_ids: set[str]) -> dict[str, list[EvaluationView]]:
    found: dict[str, list[EvaluationView]] = {}
    for row in evaluations.of_builds(session, cell_digest, build_ids):
        found.setdefault(row.build_id, []).append(evaluation_view(row))
    return found
