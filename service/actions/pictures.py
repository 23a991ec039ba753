"""From rows to views: one function per kind of row."""

from collections.abc import Mapping, Sequence

from service.actions.views import (
    ArtifactView,
    AttemptView,
    BuildView,
    EvaluationView,
    EventView,
    JobView,
    ReasonView,
    RecipeView,
    RepetitionView,
    RequestSummary,
    RunnerView,
    SlotView,
    WorkloadView,
)
from service.contract.builds import BuildKind
from service.contract.failures import Failure
from service.contract.recipes import Recipe
from service.contract.upload import ServerCounters, StepTiming
from service.contract.workloads import Workload
from service.domain import accuracy
from service.store.tables import (
    Artifact,
    Attempt,
    BuildRow,
    CellRow,
    Evaluation,
    Event,
    Job,
    Launch,
    RecipeRow,
    Repetition,
    RequestRow,
    Runner,
    Slot,
    WorkloadRow,
)


def build_view(row: BuildRow) -> BuildView:
    return BuildView.model_validate(
        {
            "id": row.id,
            "name": row.name,
            "version": row.version,
            "source": row.source,
            "source_digest": row.digest,
            "dated_at": row.dated_at,
            "registered_at": row.registered_at,
        }
    )


def recipe_view(row: RecipeRow) -> RecipeView:
    return RecipeView(
        id=row.id,
        name=row.name,
        digest=row.digest,
        registered_at=row.registered_at,
        recipe=Recipe.model_validate(row.body),
    )


def workload_view(row: WorkloadRow) -> WorkloadView:
    return WorkloadView(
        id=row.id,
        name=row.name,
        digest=row.digest,
        registered_at=row.registered_at,
        workload=Workload.model_validate(row.body),
    )


def attempt_view(row: Attempt, runner: Runner, slot: Slot) -> AttemptView:
    return AttemptView(
        id=row.id,
        job_id=row.job_id,
        number=row.number,
        fence=row.fence,
        state=row.state,
        runner_id=row.runner_id,
        runner_name=runner.name,
        slot_id=row.slot_id,
        slot_index=slot.index,
        step=row.step,
        detail=row.detail,
        progress=row.progress,
        failure=_failure(row.failure),
        late=row.late,
        log_bytes=row.log_bytes,
        steps=[StepTiming.model_validate(step) for step in row.steps or []],
        created_at=row.created_at,
        ended_at=row.ended_at,
    )


def job_view(
    row: Job, build: BuildView, attempts: int, attempt: AttemptView | None, launches: Sequence[Launch]
) -> JobView:
    """``launches`` are the job's, oldest first: the newest is the one that counts."""
    launch = launches[-1] if launches else None
    return JobView(
        id=row.id,
        request_id=row.request_id,
        build=build,
        block=row.block,
        position=row.position,
        seed=row.seed,
        state=row.state,
        cancel_requested=row.cancel_requested,
        slot_id=row.slot_id,
        attempts=attempts,
        attempt=attempt,
        failure=_failure(row.failure),
        launch_id=launch.id if launch else None,
        launch_validity=launch.validity if launch else None,
        created_at=row.created_at,
        not_before_at=row.not_before_at,
        ended_at=row.ended_at,
    )


def request_summary(
    row: RequestRow, cell: CellRow, builds: Mapping[str, BuildView], jobs_by_state: dict[str, int]
) -> RequestSummary:
    recipe = Recipe.model_validate(cell.body["recipe"])
    return RequestSummary(
        id=row.id,
        kind=row.kind,
        state=row.state,
        reason=row.reason,
        submitter=row.submitter,
        base=builds[row.body["base_id"]],
        head=builds[row.body["head_id"]],
        recipe=row.body["recipe"],
        workload=row.body["workload"],
        hardware=cell.hardware,
        cell_digest=cell.digest,
        build_kind=recipe.build_kind,
        time_compression=recipe.time_compression,
        blocks=row.body["blocks"],
        seed=row.body["seed"],
        metric=row.body["metric"],
        priority=row.body["priority"],
        cancel_requested=row.cancel_requested,
        jobs_by_state=jobs_by_state,
        created_at=row.created_at,
        ended_at=row.ended_at,
    )


def repetition_view(row: Repetition) -> RepetitionView:
    return RepetitionView(
        number=row.number,
        validity=row.validity,
        reasons=[ReasonView.model_validate(reason) for reason in row.reasons],
        metrics=row.metrics,
        metrics_schema=row.metrics_schema,
        ruler_version=row.ruler_version,
        raw_log=row.raw_log_sha256,
        counters=ServerCounters.model_validate(row.counters),
    )


def evaluation_view(row: Evaluation) -> EvaluationView:
    strict = accuracy.score(row.strict_marks) if row.strict_marks else None
    flexible = accuracy.score(row.flexible_marks) if row.flexible_marks else None
    return EvaluationView(
        outcome="scored" if strict else "undefined",
        task=row.task,
        label=row.label,
        n=row.n,
        strict=strict.accuracy if strict else None,
        strict_stderr=strict.stderr if strict else None,
        flexible=flexible.accuracy if flexible else None,
        flexible_stderr=flexible.stderr if flexible else None,
        strict_marks=row.strict_marks,
        flexible_marks=row.flexible_marks,
        questions=row.questions_sha256,
        shots=row.shots_sha256,
        samples=row.samples_sha256,
        lm_eval_version=row.lm_eval_version,
        duration_s=row.duration_s,
        failure=_failure(row.failure),
    )


def artifact_view(row: Artifact) -> ArtifactView:
    return ArtifactView(name=row.name, sha256=row.sha256, size_bytes=row.size_bytes)


def runner_view(row: Runner, slots: Sequence[Slot]) -> RunnerView:
    return RunnerView(
        id=row.id,
        name=row.name,
        hostname=row.hostname,
        state=row.state,
        drain_requested=row.drain_requested,
        hardware=row.hardware,
        build_kinds=[BuildKind(kind) for kind in row.build_kinds],
        protocol_version=row.protocol_version,
        agent_version=row.agent_version,
        token_last4=row.last4,
        disk_free_bytes=row.disk_free_bytes,
        created_at=row.created_at,
        last_seen_at=row.last_seen_at,
        slots=[SlotView(id=slot.id, index=slot.index, state=slot.state, attempt_id=slot.attempt_id) for slot in slots],
    )


def event_view(row: Event) -> EventView:
    return EventView.model_validate(row.model_dump())


def _failure(stored: dict[str, object] | None) -> Failure | None:
    return None if stored is None else Failure.model_validate(stored)
