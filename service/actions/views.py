"""What actions answer: frozen, JSON-able pictures of stored rows. No row of the database leaves the actions."""

from datetime import datetime
from typing import Any, Literal

from service.contract.builds import BuildKind, BuildSpec, Wire
from service.contract.cells import Cell
from service.contract.failures import Failure
from service.contract.lease import AttemptState
from service.contract.recipes import Recipe
from service.contract.upload import LaunchReport, ServerCounters, StepTiming
from service.contract.workloads import Workload
from service.domain.states import JobState, RequestState, RunnerState, SlotState


class BuildView(BuildSpec):
    """A registered build: ``name``, ``version`` and ``source`` as registered, and the SHA-256 of the source."""

    id: str
    source_digest: str
    registered_at: datetime


class RecipeView(Wire):
    """A registered recipe."""

    id: str
    name: str
    digest: str
    registered_at: datetime
    recipe: Recipe


class WorkloadView(Wire):
    """A registered workload."""

    id: str
    name: str
    digest: str
    registered_at: datetime
    workload: Workload


class AttemptView(Wire):
    """One execution of a job. ``progress`` is 0 to 1 within the step; ``late`` means that it ended after its lease."""

    id: str
    job_id: str
    number: int
    fence: int
    state: AttemptState
    runner_id: str
    runner_name: str
    slot_id: str
    slot_index: int
    step: str
    detail: str
    progress: float | None
    failure: Failure | None
    late: bool
    log_bytes: int
    steps: list[StepTiming]
    created_at: datetime
    ended_at: datetime | None


class JobView(Wire):
    """One launch that is wanted. ``attempt`` is the newest one, ``attempts`` how many there were.

    ``launch_id`` is the launch that counts (or, while there is none, the newest invalid one). ``failure`` is why the
    job failed for good.
    """

    id: str
    request_id: str
    build: BuildView
    block: int
    position: int
    seed: int
    state: JobState
    cancel_requested: bool
    slot_id: str | None
    attempts: int
    attempt: AttemptView | None
    failure: Failure | None
    launch_id: str | None
    launch_validity: str | None
    created_at: datetime
    not_before_at: datetime | None
    ended_at: datetime | None


class RequestSummary(Wire):
    """What somebody asked for, as it was understood, and how far it is. ``jobs_by_state`` holds only states in use."""

    id: str
    kind: str
    state: RequestState
    reason: str | None
    submitter: str
    base: BuildView
    head: BuildView
    recipe: str
    workload: str
    hardware: str
    cell_digest: str
    build_kind: BuildKind
    time_compression: float
    blocks: int
    seed: int
    metric: str
    priority: int
    cancel_requested: bool
    jobs_by_state: dict[str, int]
    created_at: datetime
    ended_at: datetime | None

    @property
    def launches_wanted(self) -> int:
        return sum(self.jobs_by_state.values())

    @property
    def launches_done(self) -> int:
        return self.jobs_by_state.get(JobState.DONE.value, 0)


class RequestView(RequestSummary):
    """A request with its jobs, ordered by block and position."""

    jobs: list[JobView]


class ReasonView(Wire):
    """Why a repetition is suspect or invalid: a stable code, and the number seen with its limit."""

    code: str
    message: str


class RepetitionView(Wire):
    """One measured repetition: what the controller itself computed from its raw log."""

    number: int
    validity: str
    reasons: list[ReasonView]
    metrics: dict[str, Any]
    metrics_schema: int
    ruler_version: int
    raw_log: str
    counters: ServerCounters


class EvaluationView(Wire):
    """What a launch answered to questions. All that belongs to a score is None where there is none.

    ``strict`` and ``flexible`` are shares of right answers from 0 to 1 with their standard errors; the marks have a 1
    or a 0 for each question, in the order of the file ``questions`` (a hash; ``shots`` is that of the examples).
    ``label`` says what kind of questions they are. ``failure`` is why there is no score.
    """

    outcome: Literal["scored", "undefined"]
    task: str
    label: str | None
    n: int | None
    strict: float | None
    strict_stderr: float | None
    flexible: float | None
    flexible_stderr: float | None
    strict_marks: str | None
    flexible_marks: str | None
    questions: str | None
    shots: str | None
    samples: str | None
    lm_eval_version: str | None
    duration_s: float | None
    failure: Failure | None


class ArtifactView(Wire):
    """A stored file of the attempt."""

    name: str
    sha256: str
    size_bytes: int


class LaunchView(Wire):
    """One server start that was measured: the unit of evidence.

    ``metrics`` holds one value for each metric over the valid repetitions; it is empty when fewer than three are valid.
    ``time_compression`` is 1 for everything real. ``evaluation`` is None where accuracy was not asked for.
    """

    id: str
    attempt_id: str
    attempt_number: int
    job_id: str
    request_id: str
    build: BuildView
    cell_digest: str
    cell: Cell
    hardware: str
    simulated: bool
    time_compression: float
    runner_id: str
    runner_name: str
    hostname: str
    agent_version: str
    slot_id: str
    slot_index: int
    block: int
    position: int
    validity: str
    metrics: dict[str, float]
    repetitions: list[RepetitionView]
    evaluation: EvaluationView | None = None
    report: LaunchReport
    artifacts: list[ArtifactView]
    created_at: datetime


class SlotView(Wire):
    """One place on a runner where one server can run."""

    id: str
    index: int
    state: SlotState
    attempt_id: str | None


class RunnerView(Wire):
    """One agent on one node."""

    id: str
    name: str
    hostname: str
    state: RunnerState
    drain_requested: bool
    hardware: list[str]
    build_kinds: list[BuildKind]
    protocol_version: int
    agent_version: str
    token_last4: str
    disk_free_bytes: int | None
    created_at: datetime
    last_seen_at: datetime | None
    slots: list[SlotView]


class EnrolmentTokenView(Wire):
    """A fresh enrolment token. ``token`` is shown this once."""

    id: str
    token: str
    expires_at: datetime


class UserTokenView(Wire):
    """A user's token without the token: only its hash is kept."""

    id: str
    name: str
    role: str
    last4: str
    created_at: datetime
    revoked_at: datetime | None


class EventView(Wire):
    """Something that happened. ``id`` grows in the order in which events became visible: a reader may go on from it."""

    id: int
    at: datetime
    subject_kind: str
    subject_id: str
    request_id: str | None
    kind: str
    data: dict[str, Any]
