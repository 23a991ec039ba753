"""Each bad stream, injected once into a load that is otherwise right, gives its reason and no other.

The first ten are those that vLLM's own benchmark client was fed: it took five of the six bad ones for a success.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvloop

from runners.load.plan import LoadPlan, LoadProgress
from runners.load.prompts import prepare
from runners.load.run import Load
from service.contract.upload import ServerCounters
from service.contract.workloads import Workload
from service.ruler.metrics import Metrics, gaps_ms
from service.ruler.rawlog import RawLog, decode
from service.ruler.recompute import recompute
from service.ruler.validity import Judgement, Validity
from tests.runners.load.stub import Answer, Script, Stub, clean

WORKLOAD = Workload(
    name="faults",
    prefix_tokens=64,
    suffix_tokens=32,
    output_tokens=20,
    concurrency=3,
    requests=6,
    warmup_requests=3,
    vocab_low=2,
    vocab_high=250,
)
FAULTY = 2 + 3 + 1
"""Two priming requests, three of the warm-up, and the first measured one come before it."""

TIMING = {"client_lag", "coalesced", "not_full_batch"}
"""Reasons that a busy machine can add by itself."""


async def in_band_error(answer: Answer) -> None:
    answer.head()
    for _ in range(8):
        answer.token()
    answer.write(b'data: {"error": {"message": "boom", "type": "InternalServerError", "code": 500}}\n\n')
    answer.end(usage=False)


async def clean_close(answer: Answer) -> None:
    answer.head()
    for _ in range(8):
        answer.token()
    answer.end(usage=False, done=False)


async def half_close(answer: Answer) -> None:
    answer.head()
    for _ in range(8):
        answer.token()
    await answer.writer.drain()
    answer.writer.close()


async def tcp_reset(answer: Answer) -> None:
    answer.head()
    for _ in range(8):
        answer.token()
    await answer.writer.drain()
    answer.reset()


def finish_early(reason: str) -> Script:
    async def script(answer: Answer) -> None:
        answer.head()
        for _ in range(7):
            answer.token()
        answer.token(finish=reason)
        answer.end()

    return script


async def multi_token(answer: Answer) -> None:
    answer.head()
    for _ in range(5):
        answer.token(4)
        await asyncio.sleep(0.004)
    answer.end()


async def one_read(answer: Answer) -> None:
    answer.head()
    answer.write(b"".join(answer.chunk() for _ in range(10)))
    for _ in range(10):
        await asyncio.sleep(0.001)
        answer.token()
    answer.end()


async def wrong_usage(answer: Answer) -> None:
    answer.head()
    for _ in range(answer.wanted):
        answer.token()
        await asyncio.sleep(0.001)
    answer.write(answer.usage(completion=1024))
    answer.end(usage=False)


def without(usage: bool, ids: bool) -> Script:
    async def script(answer: Answer) -> None:
        answer.head()
        for _ in range(answer.wanted):
            changes: dict[str, Any] = ({} if usage else {"usage": None}) | ({} if ids else {"token_ids": None})
            answer.token(**changes)
            await asyncio.sleep(0.001)
        answer.end(usage=usage)

    return script


async def empty_text(answer: Answer) -> None:
    answer.head()
    for _ in range(answer.wanted):
        answer.token(text="")
        await asyncio.sleep(0.001)
    answer.end()


async def too_long(answer: Answer) -> None:
    answer.head()
    for n in range(answer.wanted + 1):
        answer.token(finish="length" if n == answer.wanted else None)
        await asyncio.sleep(0.001)
    answer.end()


async def http_500(answer: Answer) -> None:
    answer.head("500 Internal Server Error", "application/json")
    answer.write(b'{"error": {"message": "boom"}}')
    answer.close_chunks()


async def garbage(answer: Answer) -> None:
    answer.writer.write(b"\x00\x01 this is not HTTP\r\n\r\n")
    await answer.writer.drain()


async def silence(answer: Answer) -> None:
    answer.head()
    for _ in range(8):
        answer.token()
    await answer.writer.drain()
    # The client gives up and closes; until then nothing is sent.
    await answer.writer.wait_closed()


async def until_close(answer: Answer) -> None:
    answer.chunked = False
    await clean(answer)


async def short_prompt(answer: Answer) -> None:
    answer.request["prompt"] = answer.prompt[:-1]
    await clean(answer)


@dataclass
class Outcome:
    """A repetition as it was judged."""

    log: RawLog
    metrics: Metrics
    judgement: Judgement
    counters: ServerCounters
    progress: list[LoadProgress] = field(default_factory=list)

    @property
    def codes(self) -> set[str]:
        return {reason.code for reason in self.judgement.reasons}


def run(work: Callable[[], Awaitable[Outcome]]) -> Outcome:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work())  # type: ignore[arg-type]


def inject(script: Script, folder: Path, stall_s: float = 30, **stub_options: int) -> Outcome:
    """Run the load with one faulty answer and return its first repetition."""

    async def serve(answer: Answer) -> None:
        await (script if answer.number == FAULTY else clean)(answer)

    async def work() -> Outcome:
        async with Stub(serve) as stub:
            for name, value in stub_options.items():
                setattr(stub, name, value)
            file = prepare(WORKLOAD, folder)
            plan = LoadPlan(
                port=stub.port,
                served_model_name="nonce",
                workload=WORKLOAD,
                prompts_path=str(file.path),
                out_dir=str(folder),
                deadline_s=120,
                stall_s=stall_s,
            )
            progress: list[LoadProgress] = []
            report = await Load(plan, progress.append, time.monotonic_ns).run()
            first = report.repetitions[0]
            raw = (folder / first.log.name).read_bytes()
            metrics, judgement = recompute(raw, WORKLOAD, first.counters, 16)
            assert len(report.repetitions) == WORKLOAD.repetitions
            return Outcome(decode(raw), metrics, judgement, first.counters, progress)

    return run(work)


BAD = {
    "error inside the stream": (in_band_error, {"server_error", "too_few"}),
    "closed without its end": (clean_close, {"truncated", "too_few"}),
    "connection closed": (half_close, {"truncated", "too_few"}),
    "connection reset": (tcp_reset, {"reset", "too_few"}),
    "stopped early": (finish_early("stop"), {"short_output"}),
    "aborted": (finish_early("abort"), {"aborted"}),
    "usage that disagrees": (wrong_usage, {"count_mismatch"}),
    "neither ids nor usage": (without(usage=False, ids=False), {"count_unproven"}),
    "too long": (too_long, {"long_output"}),
    "status 500": (http_500, {"server_error", "too_few"}),
    "not HTTP": (garbage, {"server_error", "too_few"}),
    "another prompt": (short_prompt, {"prompt_len_mismatch"}),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_stream_gives_its_reason(name: str, tmp_path: Path) -> None:
    script, expected = BAD[name]
    got = inject(script, tmp_path)
    assert got.codes - TIMING == expected, got.judgement
    if expected != {"count_unproven"}:
        assert got.judgement.validity is Validity.INVALID
    assert len(got.log.requests) == WORKLOAD.requests


GOOD = {
    "everything right": clean,
    "no usage, but ids": without(usage=False, ids=True),
    "no ids, but usage": without(usage=True, ids=False),
    "empty texts": empty_text,
    "ends with the connection": until_close,
}


@pytest.mark.parametrize("name", GOOD)
def test_an_odd_stream_that_is_right_is_not_blamed(name: str, tmp_path: Path) -> None:
    got = inject(GOOD[name], tmp_path)
    assert got.codes <= TIMING, got.judgement
    assert got.metrics.output_tokens == WORKLOAD.requests * WORKLOAD.output_tokens


def test_chunks_of_four_tokens_weigh_four(tmp_path: Path) -> None:
    got = inject(multi_token, tmp_path)
    assert got.codes <= TIMING
    [odd] = [r for r in got.log.requests if r.tokens.tolist() == [4] * 5]
    assert len(gaps_ms(odd)) == 16


def test_ten_events_in_one_read_are_called_coalesced(tmp_path: Path) -> None:
    got = inject(one_read, tmp_path)
    assert "coalesced" in got.codes
    assert got.judgement.validity is Validity.SUSPECT
    assert max(int(r.shared.sum()) for r in got.log.requests) >= 9
    assert got.metrics.output_tokens == WORKLOAD.requests * WORKLOAD.output_tokens


def test_a_stream_that_falls_silent_is_given_up_alone(tmp_path: Path) -> None:
    got = inject(silence, tmp_path, stall_s=0.5)
    assert got.codes - TIMING == {"stalled", "too_few"}, got.judgement
    assert sum(r.outcome == "ok" for r in got.log.requests) == WORKLOAD.requests - 1


def test_the_servers_own_counters_come_with_the_repetition(tmp_path: Path) -> None:
    got = inject(clean, tmp_path)
    assert got.counters == ServerCounters(
        prompt_tokens=6 * 96,
        generation_tokens=120,
        prefix_cache_queries=6 * 96,
        prefix_cache_hits=6 * 64,
        preemptions=0,
    )
    assert [(p.phase, p.repetition, p.requests_done) for p in got.progress if p.requests_done == p.requests] == [
        ("prime", 0, 2),
        ("warm", 0, 3),
        ("measure", 1, 6),
        ("measure", 2, 6),
        ("measure", 3, 6),
    ]


def test_a_server_without_a_prefix_cache_is_found_out(tmp_path: Path) -> None:
    got = inject(clean, tmp_path, block=10**6)
    assert got.codes - TIMING == {"prefix_hit_low"}, got.judgement
