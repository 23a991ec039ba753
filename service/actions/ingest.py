"""From a runner's report to a launch. Nothing that can be computed is believed: numbers come from the raw logs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from service.actions.context import Context
from service.contract.errors import ArtifactMissing, InvalidInput
from service.contract.failures import Failure, FailureClass
from service.contract.ids import new_id
from service.contract.upload import LaunchReport, RepetitionReport, Result, Scored, Unscored
from service.contract.workloads import Workload
from service.domain import answers
from service.domain.answers import BadSamples, Marks
from service.ruler import METRICS_SCHEMA, RULER_VERSION
from service.ruler.launch import MIN_REPETITIONS, launch_values, usable
from service.ruler.metrics import Metrics
from service.ruler.rawlog import LogHeader, Phase
from service.ruler.recompute import read, recompute
from service.ruler.validity import Judgement, Validity
from service.store import events, guards
from service.store.engine import Session
from service.store.tables import Artifact, Attempt, Evaluation, Job, Launch, Repetition

UNDEFINED = "undefined"
"""The outcome of an evaluation that has no score."""


@dataclass(frozen=True)
class Measured:
    """What the controller computed from a report's raw logs, one entry for each repetition, and from its answers."""

    report: LaunchReport
    repetitions: list[tuple[RepetitionReport, Metrics, Judgement]]
    marks: Marks | None = None

    @property
    def validity(self) -> Validity:
        """Of the launch: invalid with fewer than three usable repetitions, suspect if one of those is."""
        used = [judgement.validity for _, _, judgement in self.repetitions if usable(judgement)]
        if len(used) < MIN_REPETITIONS:
            return Validity.INVALID
        return Validity.SUSPECT if Validity.SUSPECT in used else Validity.VALID

    @property
    def values(self) -> dict[str, float]:
        """The launch's value of every metric that has one."""
        found = launch_values([(metrics, judgement) for _, metrics, judgement in self.repetitions])
        return {name: value.value for name, value in found.items()}

    @property
    def failure(self) -> Failure | None:
        """Why an invalid launch is no evidence: the codes of its repetitions."""
        if self.validity is not Validity.INVALID:
            return None
        usable_count = sum(usable(judgement) for _, _, judgement in self.repetitions)
        lines = [
            f"repetition {report.number}: {reason.code}: {reason.message}"
            for report, _, judgement in self.repetitions
            for reason in judgement.reasons
        ]
        message = f"{usable_count} of {len(self.repetitions)} repetitions may be used, {MIN_REPETITIONS} are needed. "
        return Failure(
            failure_class=FailureClass.INVALID_MEASUREMENT, step="ingest", message=(message + "; ".join(lines))[:4000]
        )


def check_files(result: Result, report: LaunchReport, stored: Sequence[Artifact]) -> None:
    """Raise ArtifactMissing, naming them, if files that a result names were not uploaded under this attempt."""
    names = {(row.name, row.sha256, row.size_bytes) for row in stored}
    missing = [ref.name for ref in result.artifacts if (ref.name, ref.sha256, ref.size_bytes) not in names]
    hashes = {row.sha256 for row in stored}
    needed = {f"raw log of repetition {r.number}": r.raw_log for r in report.repetitions}
    needed |= {"raw log of the warm-up": report.warm_log, "server log": report.identity.server_log}
    if isinstance(report.evaluation, Scored):
        needed["samples of the evaluation"] = report.evaluation.samples
    missing += [f"{what} ({sha256[:12]})" for what, sha256 in needed.items() if sha256 not in hashes]
    if missing:
        raise ArtifactMissing(f"Not uploaded under this attempt: {', '.join(missing)}.", missing=missing)


def compute(ctx: Context, report: LaunchReport, workload: Workload) -> Measured:
    """Recompute every repetition from its raw log, and every mark from the answers.

    Raises InvalidInput if repetitions are not numbered from 1, for samples that are damaged or not as many as the
    report says, and, as TooLarge, for a raw log that is damaged, or of another workload, prompts, phase or repetition.
    """
    numbers = [repetition.number for repetition in report.repetitions]
    if numbers != list(range(1, len(numbers) + 1)):
        raise InvalidInput(f"Repetitions are numbered from 1 in their order; found {numbers}.")
    _check_header(read(ctx.blobs.get(report.warm_log), workload).header, report, Phase.WARM, 0)
    repetitions = []
    for repetition in report.repetitions:
        raw = ctx.blobs.get(repetition.raw_log)
        _check_header(read(raw, workload).header, report, Phase.MEASURE, repetition.number)
        repetitions.append((repetition, *recompute(raw, workload, repetition.counters, report.block_size)))
    return Measured(report, repetitions, _marks(ctx, report))


def store(session: Session, at: datetime, job: Job, attempt: Attempt, measured: Measured) -> str:
    """Write a launch with its repetitions and return its id."""
    launch = Launch(
        id=new_id("lau"),
        attempt_id=attempt.id,
        job_id=job.id,
        request_id=job.request_id,
        build_id=job.build_id,
        cell_digest=job.cell_digest,
        runner_id=attempt.runner_id,
        slot_id=attempt.slot_id,
        block=job.block,
        position=job.position,
        validity=measured.validity,
        metrics=measured.values,
        report=measured.report.model_dump(mode="json"),
        created_at=at,
    )
    guards.insert(session, launch)
    rows = [
        Repetition(
            id=new_id("rep"),
            launch_id=launch.id,
            number=report.number,
            validity=judgement.validity,
            reasons=[reason.model_dump(mode="json") for reason in judgement.reasons],
            metrics=metrics.model_dump(mode="json"),
            metrics_schema=METRICS_SCHEMA,
            ruler_version=RULER_VERSION,
            raw_log_sha256=report.raw_log,
            counters=report.counters.model_dump(mode="json"),
        )
        for report, metrics, judgement in measured.repetitions
    ]
    guards.insert(session, *rows)
    if measured.report.evaluation is not None:
        guards.insert(session, _evaluation(at, launch, measured.report.evaluation, measured.marks))
    data = {"job_id": job.id, "build_id": job.build_id, "validity": launch.validity, "metrics": launch.metrics}
    events.record(session, at, "launch", launch.id, "stored", job.request_id, **data)
    return launch.id


def _marks(ctx: Context, report: LaunchReport) -> Marks | None:
    if not isinstance(report.evaluation, Scored):
        return None
    try:
        return answers.mark(ctx.blobs.get(report.evaluation.samples), report.evaluation.n)
    except BadSamples as error:
        raise InvalidInput(f"samples of the evaluation: {error}") from error


def _evaluation(at: datetime, launch: Launch, said: Scored | Unscored, marks: Marks | None) -> Evaluation:
    row = Evaluation(
        id=new_id("evl"),
        launch_id=launch.id,
        build_id=launch.build_id,
        cell_digest=launch.cell_digest,
        task=said.task,
        outcome=said.outcome,
        created_at=at,
    )
    if isinstance(said, Unscored):
        row.failure = said.failure.model_dump(mode="json")
        return row
    row.label, row.n = said.label, said.n
    row.questions_sha256, row.shots_sha256, row.samples_sha256 = said.questions, said.shots, said.samples
    row.lm_eval_version, row.duration_s = said.lm_eval_version, said.duration_s
    if said.failed or marks is None:  # what was not answered is not wrong: there is no score
        message = f"{said.failed} requests got no answer"
        failure = Failure(failure_class=FailureClass.EVALUATION, step="evaluate", message=message)
        row.outcome, row.failure = UNDEFINED, failure.model_dump(mode="json")
    else:
        row.strict_marks, row.flexible_marks = marks.strict, marks.flexible
    return row


def _check_header(header: LogHeader, report: LaunchReport, phase: Phase, repetition: int) -> None:
    found = (header.prompts, header.phase, header.repetition)
    said = (report.prompts, phase, repetition)
    if found != said:
        raise InvalidInput(
            f"raw log: it says prompts {found[0][:12]}, phase {found[1]}, repetition {found[2]}; "
            f"the report says {said[0][:12]}, {said[1]}, {said[2]}"
        )
