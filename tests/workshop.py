"""A controller at work, driven through its actions as runners and users drive it; raw logs are real, and tiny."""

import hashlib
from dataclasses import dataclass, field

import numpy as np

from service.actions import attempts, catalog, enrol, lease, requests, submit
from service.actions.context import Caller, Context
from service.actions.views import JobView, RequestView
from service.contract import canonical
from service.contract.builds import BuildKind, BuildSpec, SimulatedSource
from service.contract.failures import Failure, FailureClass
from service.contract.ids import new_id
from service.contract.lease import EnrolRequest, Lease, LeaseRequest
from service.contract.recipes import Recipe
from service.contract.requests import ComparisonRequest
from service.contract.upload import (
    ArtifactRef,
    Completed,
    Failed,
    Identity,
    LaunchReport,
    RepetitionReport,
    Result,
    ResultAnswer,
    ServerCounters,
    StepTiming,
)
from service.contract.workloads import Workload
from service.ruler import RULER_VERSION
from service.ruler.rawlog import (
    ClientFigures,
    LogHeader,
    Outcome,
    Phase,
    RawLog,
    RequestRecord,
    Role,
    Usage,
    encode,
)

ADA = Caller("ada", "admin")
PROMPTS = hashlib.sha256(b"prompts").hexdigest()
WORKLOAD = Workload(
    name="tiny",
    prefix_tokens=64,
    suffix_tokens=16,
    output_tokens=4,
    concurrency=2,
    requests=2,
    warmup_requests=2,
)
RECIPE = Recipe(name="plain", build_kind=BuildKind.SIMULATED, model="tiny", hardware="simulated")


def raw_log(phase: Phase, repetition: int, step_ms: float, workload: Workload = WORKLOAD, tokens: int = 4) -> bytes:
    """Return the raw log of a phase in which every token took ``step_ms``; valid if ``tokens`` are as asked for."""
    role = Role.MEASURED if phase is Phase.MEASURE else Role.WARM
    count = workload.requests if phase is Phase.MEASURE else workload.warmup_requests
    stamps = (20_000 + np.arange(tokens) * step_ms * 1000).astype(np.int64)
    records = [
        RequestRecord(
            index=index,
            role=role,
            prompt_tokens=workload.prefix_tokens + workload.suffix_tokens,
            send_us=index,
            end_us=int(stamps[-1]) + 100 + index,
            event_us=stamps + index,
            tokens=np.ones(tokens, dtype=np.int64),
            shared=np.zeros(tokens, dtype=np.int64),
            outcome=Outcome.OK,
            finish_reason="length",
            usage=Usage(prompt=workload.prefix_tokens + workload.suffix_tokens, completion=tokens),
        )
        for index in range(count)
    ]
    header = LogHeader(
        ruler_version=RULER_VERSION,
        workload=workload.digest,
        prompts=PROMPTS,
        phase=phase,
        repetition=repetition,
        base_ns=1,
        client=ClientFigures(),
    )
    return encode(RawLog(header, records))


@dataclass(frozen=True)
class Package:
    """Everything that a completed attempt hands in: files by name, and the result's body."""

    files: dict[str, bytes]
    body: Completed

    def refs(self) -> list[ArtifactRef]:
        return [
            ArtifactRef(name=name, sha256=canonical.digest_bytes(data), size_bytes=len(data))
            for name, data in self.files.items()
        ]

    def result(self, fence: int) -> Result:
        return Result(fence=fence, body=self.body, artifacts=self.refs())


def package(step_ms: float = 20.0, *, good: int = 3, version: str = "0.18.0") -> Package:
    """Return a launch of three repetitions, of which ``good`` are valid, with the given time per token."""
    files = {"warm.raw": raw_log(Phase.WARM, 0, step_ms), "server.log": b"ready\n"}
    for number in (1, 2, 3):
        tokens = WORKLOAD.output_tokens if number <= good else WORKLOAD.output_tokens - 1
        files[f"rep-{number}.raw"] = raw_log(Phase.MEASURE, number, step_ms, tokens=tokens)
    hashes = {name: canonical.digest_bytes(data) for name, data in files.items()}
    report = LaunchReport(
        identity=Identity(
            version=version,
            served_model_name="nonce",
            pid=4711,
            command=["serve"],
            env={},
            server_log=hashes["server.log"],
        ),
        prompts=PROMPTS,
        block_size=16,
        warm_log=hashes["warm.raw"],
        repetitions=[
            RepetitionReport(number=number, raw_log=hashes[f"rep-{number}.raw"], counters=ServerCounters())
            for number in (1, 2, 3)
        ],
        steps=[StepTiming(name="load", duration_s=1.5)],
        uptime_s=12.0,
    )
    return Package(files, Completed(launch=report))


def failed(failure_class: FailureClass, message: str = "it broke") -> Failed:
    return Failed(failure=Failure(failure_class=failure_class, step="start", message=message))


@dataclass
class RunnerLife:
    """One life of a runner's process."""

    id: str
    boot_id: str = field(default_factory=lambda: new_id("boot"))


@dataclass(frozen=True)
class Workshop:
    """A controller and what is registered in it."""

    ctx: Context

    def stock(self) -> None:
        """Register two builds, a recipe and a workload."""
        for version in ("0.18.0", "0.19.1"):
            catalog.register_build(self.ctx, ADA, build(version))
        catalog.register_recipe(self.ctx, ADA, RECIPE)
        catalog.register_workload(self.ctx, ADA, WORKLOAD)

    def runner(
        self,
        name: str = "node",
        slots: int = 2,
        hardware: tuple[str, ...] = ("simulated",),
        kinds: tuple[BuildKind, ...] = (BuildKind.SIMULATED,),
    ) -> RunnerLife:
        token = enrol.create_enrolment_token(self.ctx, ADA).token
        asked = EnrolRequest(
            agent_version="0.1.0",
            name=name,
            hostname="localhost",
            hardware=list(hardware),
            build_kinds=list(kinds),
            slots=slots,
        )
        return RunnerLife(enrol.enrol(self.ctx, token, asked).runner_id)

    def submit(self, blocks: int = 1, key: str | None = None, **more: object) -> RequestView:
        asked = {"base": "v0.18.0", "head": "v0.19.1", "recipe": "plain", "workload": "tiny", "blocks": blocks, **more}
        return submit.submit_comparison(self.ctx, ADA, ComparisonRequest.model_validate(asked), key)

    def lease(self, runner: RunnerLife, slot: int = 0, request_id: str | None = None) -> Lease | None:
        asked = LeaseRequest(request_id=request_id or new_id("lrq"), boot_id=runner.boot_id, slot=slot)
        return lease.try_lease(self.ctx, runner.id, asked)

    def work(self, runner: RunnerLife, slot: int = 0) -> Lease:
        """Lease, where there must be something to lease."""
        found = self.lease(runner, slot)
        assert found is not None
        return found

    def upload(self, leased: Lease, made: Package) -> None:
        for ref in made.refs():
            data = made.files[ref.name]
            attempts.put_artifact(self.ctx, leased.attempt_id, leased.fence, ref.name, ref.sha256, data)

    def finish(self, leased: Lease, made: Package | None = None) -> ResultAnswer:
        """Upload everything and hand the result in."""
        made = made or package()
        self.upload(leased, made)
        return attempts.put_result(self.ctx, leased.attempt_id, made.result(leased.fence))

    def fail(self, leased: Lease, failure_class: FailureClass, message: str = "it broke") -> ResultAnswer:
        result = Result(fence=leased.fence, body=failed(failure_class, message))
        return attempts.put_result(self.ctx, leased.attempt_id, result)

    def job(self, leased: Lease) -> JobView:
        return requests.get_job(self.ctx, leased.job_id)


def build(version: str) -> BuildSpec:
    sha256 = hashlib.sha256(version.encode()).hexdigest()
    return BuildSpec(name=f"v{version}", version=version, source=SimulatedSource(profile=f"v{version}", sha256=sha256))
