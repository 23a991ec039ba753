"""A bisect's report: what is stored, put into the words of service.domain.report."""

from collections.abc import Mapping, Sequence
from typing import Any

from service.actions import bisect, launches
from service.actions.bisect_views import BisectView, FindingView, PointView, VersionView
from service.actions.context import Context
from service.actions.views import LaunchView
from service.contract.cells import Cell
from service.contract.errors import NotFound
from service.domain import report
from service.domain.report import Column, ConfirmationRow, EvidenceRow, Report, VersionRow
from service.ruler.metrics import METRICS
from service.store import catalog

COLUMNS = ("tpot_p50_ms", "itl_p50_ms", "output_tok_s", "ttft_p50_ms")
"""What is shown of every version; the bisect's own metric is among them or goes first."""
MAX_LAUNCHES = 1000
_ACCURACY = "share of gsm8k's questions that were answered correctly (5 shots, strict match)"


def write_report(ctx: Context, bisect_id: str, url: str | None = None) -> str:
    """Return the bisect's report as Markdown, as far as the bisect is. ``url`` is the controller's address, if known.

    Raises NotFound.
    """
    view = bisect.get_bisect(ctx, bisect_id)
    measured = launches.list_launches(ctx, request=view.request_id, limit=MAX_LAUNCHES)
    return report.write(compose(view, _cell(ctx, view), list(reversed(measured)), url))


def request_body(view: BisectView) -> dict[str, Any]:
    """Return what POST /api/v1/bisects takes to do this bisect again, with its lineup and every default written out."""
    return {
        "good": view.good.name,
        "bad": view.bad.name,
        "recipe": view.cell.recipe,
        "workload": view.cell.workload,
        "hardware": view.cell.hardware,
        "metric": view.metric,
        "lineup": [one.build.name for one in view.lineup],
        "smallest": view.aim.smallest,
        "confidence": view.aim.confidence,
        "max_launches": view.aim.max_launches,
        "gsm8k": view.aim.gsm8k,
        "seed": view.seed,
    }


def columns_of(metric: str) -> tuple[str, ...]:
    """Return the metrics that a table of versions has, the asked one among them; accuracy has its own column."""
    return COLUMNS if metric in COLUMNS or metric not in METRICS else (metric, *COLUMNS)


def _cell(ctx: Context, view: BisectView) -> Cell:
    with ctx.store.read() as session:
        found = catalog.cells(session, {view.cell.digest}).get(view.cell.digest)
    if found is None:
        raise NotFound(f"The cell {view.cell.digest!r} of {view.id} is gone.")
    return Cell.model_validate(found.body)


def compose(view: BisectView, cell: Cell, measured: Sequence[LaunchView], url: str | None) -> Report:
    finding = view.finding
    names = columns_of(view.metric)
    known = METRICS.get(view.metric)
    return Report(
        title=_title(view),
        answer=_answer(view),
        sentence=view.sentence,
        accuracy=finding.accuracy or None if finding else None,
        simulated=view.cell.simulated,
        bisect_id=view.id,
        good=view.good.name,
        bad=view.bad.name,
        metric=Column(view.label, view.unit),
        metric_name=view.metric,
        metric_formula=known.formula if known else _ACCURACY,
        submitter=view.submitter,
        asked_at=view.created_at,
        ended_at=view.ended_at,
        hardware=view.cell.hardware,
        recipe=cell.recipe,
        workload=cell.workload,
        ruler_version=cell.ruler_version,
        columns=tuple(Column(METRICS[name].label, METRICS[name].unit) for name in names),
        versions=tuple(_version(one, names, finding) for one in view.lineup),
        confirmation=_confirmation(view, measured),
        broken=tuple((one.name, one.why) for one in view.lineup if one.broken),
        evidence=_evidence(view, measured),
        launches=len(measured),
        slot_minutes=view.slot_minutes,
        body=request_body(view),
        builds=tuple(one.build for one in view.lineup),
        not_claimed=_not_claimed(view),
        url=url,
    )


def _title(view: BisectView) -> str:
    finding = view.finding
    between = f"between {view.good.name} and {view.bad.name}"
    where = f"({view.cell.recipe}, {view.marks})"
    if finding is None:
        return f"{view.label} {between}: the bisect is {view.state.value} {where}"
    pair = f"{finding.last_good} and {finding.first_bad}"
    match finding.answer.value:
        case "confirmed" if finding.ratio is not None:
            size = f"{finding.ratio:.2f} times as high in {finding.first_bad} as in {finding.last_good}"
            return f"Performance: {view.label} is {size} {where}"
        case "range":
            return f"Performance: {view.label} became worse between {pair} {where}"
        case "not_reproduced":
            return f"{view.label}: no regression {between} could be reproduced {where}"
        case _:
            return f"{view.label}: no single step {between} could be named {where}"


def _answer(view: BisectView) -> str:
    if view.finding is not None:
        return view.finding.answer.value.replace("_", " ")
    return view.state.value.replace("_", " ") + (f" ({view.reason})" if view.reason else ", no answer yet")


def _version(one: VersionView, names: Sequence[str], finding: FindingView | None) -> VersionRow:
    note = f"could not be measured: {one.why}" if one.broken else ""
    if finding is not None and one.name == finding.last_good:
        note = "last good"
    elif finding is not None and one.name == finding.first_bad:
        note = "first bad"
    return VersionRow(
        name=one.name,
        launches=one.launches,
        values=tuple(one.metrics.get(name) for name in names),
        accuracy=one.gsm8k_note or None if one.gsm8k is None else f"{one.gsm8k:.4f}",
        note=note,
        broken=one.broken,
    )


def _points(view: BisectView) -> Mapping[str, PointView]:
    return {point.launch_id: point for one in view.lineup for point in one.points}


def _confirmation(view: BisectView, measured: Sequence[LaunchView]) -> tuple[ConfirmationRow, ...]:
    ids = set(view.finding.confirmation) if view.finding else set()
    points = _points(view)
    chosen = sorted(
        (one for one in measured if one.id in ids and one.id in points), key=lambda one: (one.block, one.created_at)
    )
    numbers = {block: number for number, block in enumerate(dict.fromkeys(one.block for one in chosen), 1)}
    return tuple(
        ConfirmationRow(
            block=numbers[one.block],
            slot=f"{one.runner_name}/{one.slot_index}",
            build=one.build.name,
            launch_id=one.id,
            value=points[one.id].value,
            validity=one.validity,
        )
        for one in chosen
    )


def _evidence(view: BisectView, measured: Sequence[LaunchView]) -> tuple[EvidenceRow, ...]:
    points = _points(view)
    return tuple(
        EvidenceRow(
            launch_id=one.id,
            build=one.build.name,
            phase=points[one.id].phase.value if one.id in points else "–",
            validity=_validity(one),
            said_version=one.report.identity.version,
            raw_logs=tuple(repetition.raw_log for repetition in one.repetitions),
        )
        for one in measured
    )


def _validity(one: LaunchView) -> str:
    codes = dict.fromkeys(reason.code for repetition in one.repetitions for reason in repetition.reasons)
    return f"{one.validity} ({', '.join(codes)})" if codes else one.validity


def _not_claimed(view: BisectView) -> tuple[str, ...]:
    untouched = [one.name for one in view.lineup if not one.launches and not one.broken]
    lines = [
        "Which component or kernel is responsible: a bisect names a step between two builds, not its cause.",
        "That it holds for another model, recipe, load or class of hardware: the numbers belong to this cell alone.",
        "That it is the only change between the two ends: a smaller one elsewhere may exist.",
    ]
    if untouched:
        lines.append(
            f"Anything about {', '.join(untouched)}: never launched, as the search did not need it; a change that came "
            "and went again among them would not be seen."
        )
    if not view.aim.gsm8k and view.metric in METRICS:
        lines.append("That answers are as right as before: gsm8k was not run.")
    if view.cell.simulated:
        lines.append("Anything about real vLLM or real hardware: the builds are simulated.")
    return tuple(lines)
