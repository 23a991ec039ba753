"""The server's own counters: Prometheus text, summed over engines, as differences over a repetition."""

import asyncio
import math
from collections.abc import Mapping
from types import MappingProxyType

from runners.load.record import Response
from runners.load.schedule import Target
from runners.load.wire import Ending, connect, get
from service.contract.upload import ServerCounters

NAMES: Mapping[str, str] = MappingProxyType(
    {
        "prompt_tokens": "vllm:prompt_tokens_total",
        "generation_tokens": "vllm:generation_tokens_total",
        "prefix_cache_queries": "vllm:prefix_cache_queries_total",
        "prefix_cache_hits": "vllm:prefix_cache_hits_total",
        "preemptions": "vllm:num_preemptions_total",
    }
)
"""The same from vLLM 0.18 to 0.33."""

RUNNING = "vllm:num_requests_running"
SETTLE_TRIES = 40
SETTLE_S = 0.05


def parse(text: str) -> dict[str, float]:
    """Return each metric's value, summed over its label sets (engines, models); lines that make no sense are skipped,
    and so are values that are no finite number."""
    values: dict[str, float] = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        head, brace, tail = line.partition("{")
        name, value = (head, tail.rpartition("}")[2]) if brace else (line.partition(" ")[0], line.partition(" ")[2])
        try:
            number = float(value.split()[0])
        except (ValueError, IndexError):
            continue
        if math.isfinite(number):
            values[name] = values.get(name, 0.0) + number
    return values


async def scrape(target: Target, timeout_s: float = 10.0) -> dict[str, float]:
    """Return GET /metrics, parsed; empty if there is none. Raises ConnectionError if the server is gone or silent."""
    try:
        connection = await connect(target.host, target.port, target.now_ns, timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                exchange = await connection.exchange(get(target.host, target.port, "/metrics"))
        finally:
            await connection.close()
    except OSError as error:
        raise ConnectionError(f"GET /metrics: {error or type(error).__name__}") from error
    if exchange.ending not in (Ending.COMPLETE, Ending.CLOSED):
        raise ConnectionError(f"GET /metrics: {exchange.ending} {exchange.detail}")
    return parse(Response(exchange.reads).body.decode(errors="replace")) if exchange.status == 200 else {}


async def settle(target: Target) -> dict[str, float]:
    """Return the counters once they have come to rest: nothing runs, and two scrapes in a row agree.

    A server counts a step after it has sent the step's tokens; what still moves after about 2 s is returned as it is.
    """
    last = await scrape(target)
    for _ in range(SETTLE_TRIES):
        await asyncio.sleep(SETTLE_S)
        now = await scrape(target)
        same = all(last.get(name) == now.get(name) for name in NAMES.values())
        if same and not now.get(RUNNING):
            return now
        last = now
    return last


def difference(before: Mapping[str, float], after: Mapping[str, float]) -> ServerCounters:
    """Return the growth of every counter; None for one that is missing on either side or went backwards."""
    grown = {
        field: after[name] - before[name]
        for field, name in NAMES.items()
        if name in before and name in after and after[name] >= before[name]
    }
    return ServerCounters.model_validate(grown)
