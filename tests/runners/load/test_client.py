"""The load as the agent runs it: in a process of its own that ends when it should, and keeps what is finished."""

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from runners.load import client
from runners.load.plan import LoadPlan, LoadProgress, LoadReport
from runners.load.prompts import prepare
from service.contract.failures import FailureClass
from service.contract.workloads import Workload
from service.ruler.rawlog import Phase, decode
from service.ruler.recompute import recompute
from tests.runners.load.stub import Answer, Script, Stub, clean

ROOT = Path(__file__).resolve().parents[3]
WORKLOAD = Workload(
    name="process",
    prefix_tokens=64,
    suffix_tokens=32,
    output_tokens=6,
    concurrency=2,
    requests=4,
    warmup_requests=2,
    vocab_low=2,
    vocab_high=250,
)
PER_REPETITION = WORKLOAD.requests
BEFORE = 2 + WORKLOAD.warmup_requests
T = TypeVar("T")


def plan(port: int, folder: Path, **changes: Any) -> LoadPlan:
    values = {
        "port": port,
        "served_model_name": "nonce",
        "workload": WORKLOAD,
        "prompts_path": str(prepare(WORKLOAD, folder / "prompts").path),
        "out_dir": str(folder / "out"),
        "deadline_s": 100,
        "stall_s": 60,
    }
    return LoadPlan.model_validate(values | changes)


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def silent_from(number: int, reached: asyncio.Event) -> Script:
    async def script(answer: Answer) -> None:
        if answer.number < number:
            await clean(answer)
            return
        answer.head()
        await answer.writer.drain()
        reached.set()
        await answer.writer.wait_closed()

    return script


def test_a_load_leaves_a_raw_log_per_phase_and_says_how_far_it_is(tmp_path: Path) -> None:
    seen: list[LoadProgress] = []

    async def go() -> None:
        async with Stub() as stub:
            result = await client.run_load(plan(stub.port, tmp_path), seen.append)
            assert {answer.request["model"] for answer in stub.answers} == {"nonce"}
            assert len(stub.answers) == BEFORE + 3 * PER_REPETITION
        assert result.failure is None
        assert [a.name for a in result.artifacts] == ["warm.raw", "rep-1.raw", "rep-2.raw", "rep-3.raw"]
        for ref in result.artifacts:
            raw = (tmp_path / "out" / ref.name).read_bytes()
            assert (hashlib.sha256(raw).hexdigest(), len(raw)) == (ref.sha256, ref.size_bytes)
            assert decode(raw).header.prompts == result.report.prompts
        for report, ref in zip(result.repetitions, result.artifacts[1:], strict=True):
            assert report.raw_log == ref.sha256
            raw = (tmp_path / "out" / ref.name).read_bytes()
            metrics, _ = recompute(raw, WORKLOAD, report.counters, 16)
            assert metrics.output_tokens == report.counters.generation_tokens == 24

    run(go())
    assert seen[0] == LoadProgress(phase="prime", repetition=0, of=3, requests_done=0, requests=2)
    assert seen[-1] == LoadProgress(phase="measure", repetition=3, of=3, requests_done=4, requests=4)


def test_equal_loads_send_equal_bytes(tmp_path: Path) -> None:
    async def go() -> list[list[bytes]]:
        sent = []
        for name in ("a", "b"):
            async with Stub() as stub:
                await client.run_load(plan(stub.port, tmp_path / name), lambda _: None)
                sent.append(sorted(stub.bodies))
        return sent

    first, second = run(go())
    assert first == second
    # The prefix alone is sent twice, as priming and as proof; nothing else is.
    assert len(set(first)) == len(first) - 1


def test_a_server_that_dies_is_a_crash_and_finished_repetitions_are_kept(tmp_path: Path) -> None:
    async def go() -> None:
        async with Stub() as stub:

            async def dying(answer: Answer) -> None:
                if answer.number < BEFORE + PER_REPETITION + 1:
                    await clean(answer)
                    return
                answer.head()
                stub.stop_listening()
                answer.reset()

            stub.script = dying
            result = await client.run_load(plan(stub.port, tmp_path), lambda _: None)
        assert result.failure is not None
        assert result.failure.failure_class is FailureClass.SERVER_CRASH
        assert "rep-2" in result.failure.message
        assert [r.number for r in result.repetitions] == [1]
        partial = decode((tmp_path / "out" / "rep-2.partial.raw").read_bytes())
        assert (partial.header.phase, partial.header.repetition) == (Phase.MEASURE, 2)

    run(go())


@pytest.mark.parametrize(
    ("status", "failure_class"),
    [("404 Not Found", FailureClass.SPEC_INVALID), ("500 Internal Server Error", FailureClass.SERVER_CRASH)],
)
def test_a_server_that_refuses_the_first_request_ends_the_load(
    tmp_path: Path, status: str, failure_class: FailureClass
) -> None:
    async def refuse(answer: Answer) -> None:
        answer.head(status, "application/json")
        answer.write(b'{"error":{"message":"the model nonce does not exist"}}')
        answer.close_chunks()

    async def go() -> None:
        async with Stub(refuse) as stub:
            result = await client.run_load(plan(stub.port, tmp_path), lambda _: None)
            assert len(stub.answers) <= 2
        assert result.failure is not None
        assert result.failure.failure_class is failure_class
        assert "the model nonce does not exist" in result.failure.message
        assert result.artifacts == []

    run(go())


def test_a_server_that_is_not_there_is_a_crash(tmp_path: Path) -> None:
    async def go() -> None:
        async with Stub() as stub:
            port = stub.port
        result = await client.run_load(plan(port, tmp_path), lambda _: None)
        assert result.failure is not None
        assert result.failure.failure_class is FailureClass.SERVER_CRASH
        assert "can't be reached" in result.failure.message

    run(go())


def test_a_deadline_that_passes_is_a_timeout_of_the_step(tmp_path: Path) -> None:
    async def go() -> None:
        reached = asyncio.Event()
        async with Stub(silent_from(BEFORE + PER_REPETITION, reached)) as stub:
            result = await client.run_load(plan(stub.port, tmp_path, deadline_s=5), lambda _: None)
        assert result.failure is not None
        assert result.failure.failure_class is FailureClass.TIMEOUT_STEP
        assert "the deadline of 5 s passed" in result.failure.message
        assert [r.number for r in result.repetitions] == ([1] if reached.is_set() else [])

    run(go())


def test_a_load_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    async def go() -> None:
        reached = asyncio.Event()
        async with Stub(silent_from(BEFORE, reached)) as stub:
            task = asyncio.create_task(client.run_load(plan(stub.port, tmp_path), lambda _: None))
            await reached.wait()
            [child] = psutil.Process().children()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not psutil.pid_exists(child.pid)
        assert LoadReport.model_validate_json((tmp_path / "out" / "load.json").read_bytes()).warm is not None

    run(go())


def test_a_process_that_is_killed_is_an_internal_failure_that_says_so(tmp_path: Path) -> None:
    async def go() -> None:
        reached = asyncio.Event()
        async with Stub(silent_from(BEFORE + PER_REPETITION, reached)) as stub:
            task = asyncio.create_task(client.run_load(plan(stub.port, tmp_path), lambda _: None))
            await reached.wait()
            [child] = psutil.Process().children()
            child.kill()
            result = await task
        assert result.failure is not None
        assert result.failure.failure_class is FailureClass.INTERNAL
        assert "SIGKILL" in result.failure.message
        assert [r.number for r in result.repetitions] == [1]

    run(go())


PARENT = """
import asyncio, sys
from runners.load.client import run_load
from runners.load.plan import LoadPlan
asyncio.run(run_load(LoadPlan.model_validate_json(sys.argv[1]), lambda progress: None))
"""


def test_the_process_dies_with_its_parent(tmp_path: Path) -> None:
    async def go() -> None:
        reached = asyncio.Event()
        async with Stub(silent_from(BEFORE, reached)) as stub:
            made = plan(stub.port, tmp_path).model_dump_json()
            parent = await asyncio.create_subprocess_exec(sys.executable, "-c", PARENT, made, cwd=ROOT)
            await reached.wait()
            [child] = psutil.Process(parent.pid).children()
            os.kill(parent.pid, signal.SIGKILL)
            await parent.wait()
            gone, alive = await asyncio.to_thread(psutil.wait_procs, [child], 30)
            assert (len(gone), alive) == (1, [])

    run(go())


def test_a_plan_of_another_workload_is_refused_with_a_message(tmp_path: Path) -> None:
    other = WORKLOAD.model_copy(update={"seed": 99})

    async def go() -> None:
        async with Stub() as stub:
            result = await client.run_load(plan(stub.port, tmp_path, workload=other), lambda _: None)
            assert stub.answers == []
        assert result.failure is not None
        assert result.failure.failure_class is FailureClass.INTERNAL
        assert "not the prompts of workload process" in result.failure.message

    run(go())


def test_a_process_whose_parent_is_another_does_nothing(tmp_path: Path) -> None:
    command = client.command(tmp_path / "absent.json")
    command[-1] = "1"
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "the parent ended" in done.stderr
