"""The runner protocol's messages, in the order in which a runner's life sends them. docs/protocol.md is the prose.

Durations cross the wire, never absolute times. Every call may be repeated.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from service.contract import PROTOCOL_VERSION
from service.contract.builds import Build, BuildKind, Name, Sha256, Wire
from service.contract.recipes import ResolvedRecipe
from service.contract.workloads import Workload

SlotIndex = Annotated[int, Field(ge=0, lt=1024)]


class Directive(StrEnum):
    """What the controller wants of a runner; every renewal and heartbeat is answered with one."""

    CONTINUE = "continue"
    CANCEL = "cancel"
    """Stop this attempt, clean up, release it."""
    DRAIN = "drain"
    """Finish what runs, take nothing new."""
    LOST = "lost"
    """What the error lease_lost comes to in a runner; never sent. Stop, keep the local files, forget."""


class AttemptState(StrEnum):
    """States of an attempt; the transitions are in service/domain/states.py."""

    LEASED = "leased"
    PREPARING = "preparing"
    SERVING = "serving"
    WARMING = "warming"
    MEASURING = "measuring"
    EVALUATING = "evaluating"
    UPLOADING = "uploading"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    RELEASED = "released"
    CANCELLED = "cancelled"


class EnrolRequest(Wire):
    """POST /api/v1/agent/enrol, with a single-use enrolment token in place of a runner's."""

    protocol_version: int = PROTOCOL_VERSION
    agent_version: str = Field(max_length=100)
    name: Name
    hostname: str = Field(max_length=255)
    hardware: list[Name] = Field(min_length=1)
    build_kinds: list[BuildKind] = Field(min_length=1)
    slots: int = Field(ge=1, le=64)


class Enrolment(Wire):
    """The runner's own id and token. The token is shown this once."""

    runner_id: str
    token: str


class Heartbeat(Wire):
    """POST /api/v1/agent/heartbeat: every 30 s, idle or not."""

    protocol_version: int = PROTOCOL_VERSION
    agent_version: str = Field(max_length=100)
    boot_id: str
    disk_free_bytes: int = Field(ge=0)
    busy_slots: list[SlotIndex] = []
    draining: bool = False


class HeartbeatAnswer(Wire):
    """What the runner is to do, and when to call again."""

    directive: Directive
    interval_s: float


class LeaseRequest(Wire):
    """POST /api/v1/agent/lease: asks for work for one free slot; held up to ``wait_s``, then 204.

    The same ``request_id`` gets the same lease again, so that a lost answer strands no job.
    """

    protocol_version: int = PROTOCOL_VERSION
    request_id: str = Field(min_length=8, max_length=64)
    boot_id: str = Field(min_length=8, max_length=64)
    slot: SlotIndex
    wait_s: float = Field(default=20, ge=0, le=25)


class EvaluationOrder(Wire):
    """Ask the server questions after it was measured. ``limit``: only the first so many of them."""

    task: Literal["gsm8k"] = "gsm8k"
    limit: int | None = Field(default=None, ge=1, le=100_000)


class Lease(Wire):
    """One attempt, with everything the runner needs to make it: it reads no catalog."""

    protocol_version: int = PROTOCOL_VERSION
    attempt_id: str
    job_id: str
    request_id: str
    number: int
    fence: int
    token: str
    """Opens this attempt's renew, log, artifact, result and release, and nothing else."""
    ttl_s: float
    renew_s: float
    slot: SlotIndex
    build: Build
    recipe: ResolvedRecipe
    workload: Workload
    cell: Sha256
    hardware: Name
    seed: int
    """Seeds a simulated engine's noise; real servers don't get it."""
    evaluation: EvaluationOrder | None = None
    """Accuracy is wanted of this launch, too."""


class Renewal(Wire):
    """POST /api/v1/agent/attempts/{id}/renew: proof of life, and what the attempt is doing."""

    fence: int
    state: AttemptState
    step: str = Field(max_length=40)
    detail: str = Field(default="", max_length=500)
    progress: float | None = Field(default=None, ge=0, le=1)


class RenewalAnswer(Wire):
    """``lost`` comes as problem+json with status 409 and code lease_lost."""

    directive: Directive


class LogAnswer(Wire):
    """PATCH /api/v1/agent/attempts/{id}/log?fence=F&offset=N, body: raw bytes. Answers the size now stored."""

    size_bytes: int


class ReleaseReason(StrEnum):
    """Why a runner gives an attempt back without burning it."""

    DRAIN = "drain"
    SHUTDOWN = "shutdown"
    CANCELLED = "cancelled"


class Release(Wire):
    """POST /api/v1/agent/attempts/{id}/release."""

    fence: int
    reason: ReleaseReason
