"""Launches as the store would show them, made in memory: values in, LaunchView out."""

import hashlib
from datetime import UTC, datetime, timedelta

from service.actions.views import ArtifactView, BuildView, LaunchView, ReasonView, RepetitionView
from service.contract.builds import BuildKind, SimulatedSource, WheelSource
from service.contract.cells import Cell
from service.contract.recipes import Recipe
from service.contract.upload import Identity, LaunchReport, RepetitionReport, ServerCounters, StepTiming
from service.contract.workloads import Workload

START = datetime(2026, 12, 1, 9, 0, tzinfo=UTC)
ABBA = "ABBA"


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def build(name: str, kind: BuildKind = BuildKind.SIMULATED, id_: str | None = None) -> BuildView:
    source = (
        SimulatedSource(profile=name, sha256=sha(name))
        if kind is BuildKind.SIMULATED
        else WheelSource(wheel_set=name, sha256=sha(name))
    )
    return BuildView(
        id=id_ or f"bld_{sha(f'{kind} {name}')[:16]}",
        name=name,
        version=name.removeprefix("v"),
        source=source,
        source_digest=sha(f"source {name}"),
        registered_at=START,
    )


def recipe(name: str = "kimi-decode", kind: BuildKind = BuildKind.SIMULATED, compression: float = 4.0) -> Recipe:
    simulated = kind is BuildKind.SIMULATED
    return Recipe(
        name=name,
        build_kind=kind,
        model="amd/Kimi-K2.5-MXFP4" if simulated else "bundled:tiny-llama",
        hardware="mi350x" if simulated else "cpu",
        tensor_parallel=4 if simulated else 1,
        args=["--max-num-seqs", "16"],
        time_compression=compression if simulated else 1.0,
    )


def workload(name: str = "long-prefix", output_tokens: int = 256) -> Workload:
    return Workload(
        name=name,
        prefix_tokens=40960,
        suffix_tokens=10240,
        output_tokens=output_tokens,
        concurrency=16,
        requests=32,
        warmup_requests=16,
    )


def cell(kind: BuildKind = BuildKind.SIMULATED, output_tokens: int = 256) -> Cell:
    served = recipe(kind=kind)
    return Cell(
        recipe=served, workload=workload(output_tokens=output_tokens), hardware=served.hardware, ruler_version=1
    )


def launch(
    of: BuildView,
    number: int,
    metrics: dict[str, float],
    *,
    where: Cell | None = None,
    request: str = "req_0000000000000001",
    block: int = 0,
    position: int = 0,
    slot: int = 0,
    validity: str = "valid",
    reason: ReasonView | None = None,
) -> LaunchView:
    """One launch; ``number`` makes it unique and orders it in time. Its repetitions lie 0.4 % around its values."""
    where = where or cell()
    key = f"{request} {of.id} {number}"
    hashes = {name: sha(f"{key} {name}") for name in ("prompts", "server_log", "warm", "rep-1", "rep-2", "rep-3")}
    repetitions = [
        RepetitionView(
            number=i,
            validity=validity,
            reasons=[reason] if reason else [],
            metrics={name: value * (1 + 0.004 * (i - 2)) for name, value in metrics.items()},
            metrics_schema=1,
            ruler_version=1,
            raw_log=hashes[f"rep-{i}"],
            counters=ServerCounters(prompt_tokens=1_638_400, generation_tokens=8192, preemptions=0),
        )
        for i in (1, 2, 3)
    ]
    return LaunchView(
        id=f"lau_{sha(key)[:16]}",
        attempt_id=f"att_{sha(key)[:16]}",
        attempt_number=1,
        job_id=f"job_{sha(key)[:16]}",
        request_id=request,
        build=of,
        cell_digest=where.digest,
        cell=where,
        hardware=where.hardware,
        simulated=of.kind is BuildKind.SIMULATED,
        time_compression=where.recipe.time_compression,
        runner_id="run_0000000000000001",
        runner_name="node-7",
        hostname="node-7.example",
        agent_version="0.1.0",
        slot_id=f"slt_{slot}",
        slot_index=slot,
        block=block,
        position=position,
        validity=validity,
        metrics={} if validity == "invalid" else metrics,
        repetitions=repetitions,
        report=_report(of, key, number, hashes, repetitions),
        artifacts=[
            ArtifactView(name=f"{name}.bin", sha256=digest, size_bytes=70_000) for name, digest in hashes.items()
        ],
        created_at=START + timedelta(minutes=number),
    )


def _report(
    of: BuildView, key: str, number: int, hashes: dict[str, str], repetitions: list[RepetitionView]
) -> LaunchReport:
    nonce = f"nonce-{sha(key)[:8]}"
    simulated = of.kind is BuildKind.SIMULATED
    started = ["python", "-m", "images.simulated", "--profile", of.name] if simulated else ["vllm", "serve", "tiny"]
    command = [*started, "--port", str(40000 + number)]
    return LaunchReport(
        identity=Identity(
            version=of.version,
            served_model_name=nonce,
            pid=4000 + number,
            command=[*command, "--served-model-name", nonce, "--max-num-seqs", "16"],
            env={"VLLM_ROCM_USE_AITER": "1"},
            server_log=hashes["server_log"],
        ),
        prompts=hashes["prompts"],
        block_size=16,
        warm_log=hashes["warm"],
        repetitions=[
            RepetitionReport(number=one.number, raw_log=one.raw_log, counters=one.counters) for one in repetitions
        ],
        steps=[StepTiming(name="prepare", duration_s=0.3), StepTiming(name="measure", duration_s=14.2)],
        uptime_s=31.5,
    )


def blocks(
    base: BuildView,
    head: BuildView,
    values: list[list[dict[str, float]]],
    *,
    where: Cell | None = None,
    request: str = "req_0000000000000001",
    first: int = 0,
) -> list[LaunchView]:
    """Blocks of A B B A: ``values[block][position]`` are a launch's metrics; block k runs on slot k modulo 2."""
    return [
        launch(
            base if ABBA[position] == "A" else head,
            first + position * len(values) + block,
            metrics,
            where=where,
            request=request,
            block=block,
            position=position,
            slot=block % 2,
        )
        for block, four in enumerate(values)
        for position, metrics in enumerate(four)
    ]
