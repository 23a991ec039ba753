"""What a runner hands in: artifacts by content, and one result per attempt.

The controller believes no number in here that it can compute: metrics and validity come from the raw logs.
"""

from typing import Annotated, Literal

from pydantic import Field

from service.contract import PROTOCOL_VERSION
from service.contract.builds import Sha256, Wire
from service.contract.failures import Failure


class ArtifactRef(Wire):
    """A file of the attempt: PUT /api/v1/agent/attempts/{id}/artifacts/{sha256}?fence=F&name=NAME, body: its bytes."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    sha256: Sha256
    size_bytes: int = Field(ge=0)


class StepTiming(Wire):
    """How long one named step of the attempt took."""

    name: str = Field(max_length=40)
    duration_s: float = Field(ge=0)


class Identity(Wire):
    """Proof of which server was measured: what it answered, which process it was, where its log is."""

    version: str
    """The server's own answer to GET /version."""
    served_model_name: str
    """A nonce of this attempt: a stale server on the same port can't know it."""
    pid: int
    command: list[str]
    env: dict[str, str]
    """Only what the recipe, the build and the launcher set; never the runner's own environment."""
    server_log: Sha256


class ServerCounters(Wire):
    """Differences of the server's own counters over one repetition; None where the server has no such counter."""

    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    prefix_cache_queries: float | None = None
    prefix_cache_hits: float | None = None
    preemptions: float | None = None


class RepetitionReport(Wire):
    """One measured repetition: the hash of its raw log (an uploaded artifact) and the server's counters over it."""

    number: int = Field(ge=1)
    raw_log: Sha256
    counters: ServerCounters


class Scored(Wire):
    """Every question was answered. ``samples`` is the uploaded file of answers, from which the score is computed.

    ``questions`` and ``shots`` are hashes of the files; ``label`` says what kind of questions they are, such as
    ``gsm8k-like (simulated)``. ``failed`` counts requests that got no answer: a score with one is not defined.
    """

    outcome: Literal["scored"] = "scored"
    task: Literal["gsm8k"] = "gsm8k"
    label: str = Field(min_length=1, max_length=100)
    questions: Sha256
    shots: Sha256
    n: int = Field(ge=1, le=1_000_000)
    failed: int = Field(default=0, ge=0)
    samples: Sha256
    lm_eval_version: str = Field(max_length=100)
    duration_s: float = Field(ge=0)


class Unscored(Wire):
    """There is no score, and why. It is not zero: what could not be asked says nothing about the answers."""

    outcome: Literal["undefined"] = "undefined"
    task: Literal["gsm8k"] = "gsm8k"
    failure: Failure


Evaluation = Annotated[Scored | Unscored, Field(discriminator="outcome")]


class LaunchReport(Wire):
    """One server start that was measured."""

    identity: Identity
    prompts: Sha256
    """Hash of the file of token ids that was sent."""
    block_size: int = Field(ge=1)
    """Tokens per prefix-cache block of this server; the theory of cache hits is computed with it."""
    warm_log: Sha256
    """Raw log of priming and warm-up."""
    repetitions: list[RepetitionReport] = Field(min_length=1)
    steps: list[StepTiming]
    uptime_s: float = Field(ge=0)
    evaluation: Evaluation | None = None
    """Present if and only if the lease asked for one."""


class Completed(Wire):
    outcome: Literal["completed"] = "completed"
    launch: LaunchReport


class Failed(Wire):
    outcome: Literal["failed"] = "failed"
    failure: Failure
    steps: list[StepTiming] = []


class Result(Wire):
    """PUT /api/v1/agent/attempts/{id}/result. The same result again is a replay (200); another one is refused (409)."""

    protocol_version: int = PROTOCOL_VERSION
    fence: int
    body: Annotated[Completed | Failed, Field(discriminator="outcome")]
    artifacts: list[ArtifactRef] = []


class ResultAnswer(Wire):
    """``accepted`` is False for the late result of an attempt that was overtaken: kept for audit, never used."""

    accepted: bool
    replay: bool = False
    launch_id: str | None = None
