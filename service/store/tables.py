"""The tables. A word here means what docs/design.md's glossary says it means."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, UniqueConstraint, false
from sqlmodel import Field, SQLModel

from service.contract.lease import AttemptState
from service.domain.states import BisectState, JobState, RequestState, RunnerState, SlotState
from service.store.columns import EnumText, JsonValue, UtcTime


def _json() -> Any:
    return Field(sa_column=Column(JsonValue, nullable=False))


def _json_or_none() -> Any:
    return Field(default=None, sa_column=Column(JsonValue(none_as_null=True), nullable=True))


def _time() -> Any:
    return Field(sa_column=Column(UtcTime, nullable=False))


def _time_or_none() -> Any:
    return Field(default=None, sa_column=Column(UtcTime, nullable=True))


def _flag() -> Any:
    """For a column that a later migration added: the rows that were there have the default."""
    return Field(default=False, sa_column=Column(Boolean, nullable=False, server_default=false()))


def _enum(kind: type[StrEnum], index: bool = False) -> Any:
    return Field(sa_column=Column(EnumText(kind), nullable=False, index=index))


class UserToken(SQLModel, table=True):
    """A person's or program's key to the REST interface; only its hash is kept."""

    __tablename__ = "user_token"
    id: str = Field(primary_key=True)
    name: str = Field(unique=True)
    role: str
    sha256: str = Field(unique=True)
    last4: str
    created_at: datetime = _time()
    revoked_at: datetime | None = _time_or_none()


class EnrolmentToken(SQLModel, table=True):
    """Lets one runner enrol, once."""

    __tablename__ = "enrolment_token"
    id: str = Field(primary_key=True)
    sha256: str = Field(unique=True)
    created_by: str
    created_at: datetime = _time()
    expires_at: datetime = _time()
    used_at: datetime | None = _time_or_none()
    runner_id: str | None = None


class Runner(SQLModel, table=True):
    """One agent. ``boot_id`` names one life of its process: a restarted agent can't pass for its former self."""

    __tablename__ = "runner"
    id: str = Field(primary_key=True)
    name: str = Field(unique=True)
    hostname: str
    state: RunnerState = _enum(RunnerState)
    drain_requested: bool = False
    boot_id: str | None = None
    hardware: list[str] = _json()
    build_kinds: list[str] = _json()
    protocol_version: int
    agent_version: str
    token_sha256: str = Field(unique=True)
    last4: str
    disk_free_bytes: int | None = Field(default=None, sa_column=Column(BigInteger, nullable=True))
    created_at: datetime = _time()
    last_seen_at: datetime | None = _time_or_none()


class Slot(SQLModel, table=True):
    __tablename__ = "slot"
    __table_args__ = (UniqueConstraint("runner_id", "index"),)
    id: str = Field(primary_key=True)
    runner_id: str = Field(foreign_key="runner.id")
    index: int
    state: SlotState = _enum(SlotState)
    attempt_id: str | None = None


class BuildRow(SQLModel, table=True):
    """A registered build. A name may be registered again with another digest: the newest is meant by the name."""

    __tablename__ = "build"
    __table_args__ = (UniqueConstraint("name", "kind", "digest"),)
    id: str = Field(primary_key=True)
    name: str = Field(index=True)
    version: str
    kind: str
    digest: str
    source: dict[str, Any] = _json()
    dated_at: datetime | None = _time_or_none()
    registered_at: datetime = _time()


class RecipeRow(SQLModel, table=True):
    __tablename__ = "recipe"
    __table_args__ = (UniqueConstraint("name", "digest"),)
    id: str = Field(primary_key=True)
    name: str = Field(index=True)
    digest: str
    body: dict[str, Any] = _json()
    registered_at: datetime = _time()


class WorkloadRow(SQLModel, table=True):
    __tablename__ = "workload"
    __table_args__ = (UniqueConstraint("name", "digest"),)
    id: str = Field(primary_key=True)
    name: str = Field(index=True)
    digest: str
    body: dict[str, Any] = _json()
    registered_at: datetime = _time()


class CellRow(SQLModel, table=True):
    __tablename__ = "cell"
    digest: str = Field(primary_key=True)
    recipe_id: str = Field(foreign_key="recipe.id")
    workload_id: str = Field(foreign_key="workload.id")
    hardware: str
    ruler_version: int
    body: dict[str, Any] = _json()
    created_at: datetime = _time()


class RequestRow(SQLModel, table=True):
    """What somebody asked for. ``body`` is the request as it was understood, with ids in place of names."""

    __tablename__ = "request"
    id: str = Field(primary_key=True)
    kind: str
    state: RequestState = _enum(RequestState, index=True)
    reason: str | None = None
    submitter: str
    cell_digest: str = Field(foreign_key="cell.digest")
    body: dict[str, Any] = _json()
    idempotency_key: str | None = Field(default=None, unique=True)
    cancel_requested: bool = False
    created_at: datetime = _time()
    ended_at: datetime | None = _time_or_none()


class Job(SQLModel, table=True):
    """One launch that is wanted.

    Jobs of one ``block`` run in the order of ``position`` on one slot, so that their comparison is within that slot.
    ``fence`` is the fence of the newest attempt; it grows by one per claim and guards every write of an attempt.
    ``avoided_slot_id`` is the slot where its server did not start: it is tried again on another, while there is one.
    ``evaluate`` asks for the build's accuracy beside its speed.
    """

    __tablename__ = "job"
    __table_args__ = (UniqueConstraint("request_id", "block", "position"), Index("job_queue", "state", "created_at"))
    id: str = Field(primary_key=True)
    request_id: str = Field(foreign_key="request.id", index=True)
    build_id: str = Field(foreign_key="build.id")
    cell_digest: str = Field(foreign_key="cell.digest", index=True)
    hardware: str
    build_kind: str
    block: int
    position: int
    seed: int = Field(sa_column=Column(BigInteger, nullable=False))
    state: JobState = _enum(JobState)
    priority: int = 0
    cancel_requested: bool = False
    fence: int = 0
    slot_id: str | None = Field(default=None, foreign_key="slot.id")
    not_before_at: datetime | None = _time_or_none()
    failure: dict[str, Any] | None = _json_or_none()
    created_at: datetime = _time()
    ended_at: datetime | None = _time_or_none()
    avoided_slot_id: str | None = None
    evaluate: bool = _flag()


class Attempt(SQLModel, table=True):
    """One execution of a job under a lease. The newest (largest fence) is the only one that can be live."""

    __tablename__ = "attempt"
    __table_args__ = (UniqueConstraint("job_id", "fence"), UniqueConstraint("runner_id", "lease_request_id"))
    id: str = Field(primary_key=True)
    job_id: str = Field(foreign_key="job.id", index=True)
    number: int
    fence: int
    state: AttemptState = _enum(AttemptState, index=True)
    runner_id: str = Field(foreign_key="runner.id")
    slot_id: str = Field(foreign_key="slot.id")
    boot_id: str
    lease_request_id: str
    lease_until_at: datetime = _time()
    step: str = ""
    detail: str = ""
    progress: float | None = None
    failure: dict[str, Any] | None = _json_or_none()
    result_sha256: str | None = None
    late: bool = False
    log_bytes: int = Field(default=0, sa_column=Column(BigInteger, nullable=False))
    steps: list[dict[str, Any]] | None = _json_or_none()
    created_at: datetime = _time()
    ended_at: datetime | None = _time_or_none()


class Launch(SQLModel, table=True):
    """One server start that was measured: the unit of evidence. ``metrics`` are of the valid repetitions, by name."""

    __tablename__ = "launch"
    id: str = Field(primary_key=True)
    attempt_id: str = Field(foreign_key="attempt.id", unique=True)
    job_id: str = Field(foreign_key="job.id", index=True)
    """A job whose launch was invalid is tried again: it may have several, of which at most one is usable."""
    request_id: str = Field(foreign_key="request.id", index=True)
    build_id: str = Field(foreign_key="build.id", index=True)
    cell_digest: str = Field(foreign_key="cell.digest", index=True)
    runner_id: str = Field(foreign_key="runner.id")
    slot_id: str = Field(foreign_key="slot.id")
    block: int
    position: int
    validity: str
    metrics: dict[str, Any] = _json()
    report: dict[str, Any] = _json()
    """The runner's LaunchReport, word by word."""
    created_at: datetime = _time()


class Repetition(SQLModel, table=True):
    __tablename__ = "repetition"
    __table_args__ = (UniqueConstraint("launch_id", "number"),)
    id: str = Field(primary_key=True)
    launch_id: str = Field(foreign_key="launch.id", index=True)
    number: int
    validity: str
    reasons: list[dict[str, Any]] = _json()
    metrics: dict[str, Any] = _json()
    metrics_schema: int
    ruler_version: int
    raw_log_sha256: str
    counters: dict[str, Any] = _json()


class Evaluation(SQLModel, table=True):
    """The accuracy of one launch, or why it has none.

    ``strict_marks`` and ``flexible_marks`` have a 1 or a 0 for each question in the order of the file: two builds are
    compared question by question. ``failure`` is why there is no score.
    """

    __tablename__ = "evaluation"
    id: str = Field(primary_key=True)
    launch_id: str = Field(foreign_key="launch.id", unique=True)
    build_id: str = Field(foreign_key="build.id", index=True)
    cell_digest: str = Field(foreign_key="cell.digest", index=True)
    task: str
    outcome: str
    label: str | None = None
    questions_sha256: str | None = None
    shots_sha256: str | None = None
    samples_sha256: str | None = None
    n: int | None = None
    strict_marks: str | None = None
    flexible_marks: str | None = None
    lm_eval_version: str | None = None
    duration_s: float | None = None
    failure: dict[str, Any] | None = _json_or_none()
    created_at: datetime = _time()


class Artifact(SQLModel, table=True):
    """A file of an attempt; its bytes are in the blob store under their hash."""

    __tablename__ = "artifact"
    __table_args__ = (UniqueConstraint("attempt_id", "name"),)
    id: str = Field(primary_key=True)
    attempt_id: str = Field(foreign_key="attempt.id", index=True)
    name: str
    sha256: str = Field(index=True)
    size_bytes: int = Field(sa_column=Column(BigInteger, nullable=False))
    created_at: datetime = _time()


class Bisect(SQLModel, table=True):
    """A search along a lineup. It owns one request of kind ``bisect``, to which its planner adds jobs step by step.

    ``lineup`` is the nodes in order; ``last_step`` the number of its newest step, which guards the next one;
    ``seen`` a hash of what was known when the planner last looked.
    """

    __tablename__ = "bisect"
    id: str = Field(primary_key=True)
    request_id: str = Field(foreign_key="request.id", unique=True)
    state: BisectState = _enum(BisectState, index=True)
    answer: str | None = None
    reason: str | None = None
    paused: bool = False
    metric: str
    aim: dict[str, Any] = _json()
    lineup: list[dict[str, Any]] = _json()
    finding: dict[str, Any] | None = _json_or_none()
    last_step: int = 0
    seen: str = ""
    created_at: datetime = _time()
    ended_at: datetime | None = _time_or_none()


class BisectStep(SQLModel, table=True):
    """One decision of the planner: all that it was made from (``evidence``), and all that it came to."""

    __tablename__ = "bisect_step"
    __table_args__ = (UniqueConstraint("bisect_id", "number"),)
    id: str = Field(primary_key=True)
    bisect_id: str = Field(foreign_key="bisect.id", index=True)
    number: int
    at: datetime = _time()
    phase: str | None = None
    evidence: dict[str, Any] = _json()
    orders: list[dict[str, Any]] = _json()
    picture: dict[str, Any] = _json()
    forecast: dict[str, Any] = _json()
    reason: str
    slots: int
    """How many slots there were to launch on, at least one."""
    slot_s: float
    """How long attempts had occupied slots until then."""


class Event(SQLModel, table=True):
    """Something that happened. Rows are only ever added."""

    __tablename__ = "event"
    __table_args__ = (Index("event_subject", "subject_kind", "subject_id"),)
    id: int | None = Field(
        default=None,
        sa_column=Column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    )
    at: datetime = _time()
    subject_kind: str
    subject_id: str
    request_id: str | None = Field(default=None, index=True)
    kind: str
    data: dict[str, Any] = _json()
