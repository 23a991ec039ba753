"""Prometheus text becomes differences, and nothing is claimed that is not there."""

import asyncio

import pytest

from runners.load.counters import NAMES, difference, parse, scrape, settle
from runners.load.schedule import Target
from service.contract.upload import ServerCounters
from tests.runners.load.stub import Stub

TEXT = """# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="a } b"} 1.5e+06
vllm:prompt_tokens_total{engine="1",model_name="a"} 10.0 1700000000
vllm:prompt_tokens_created{engine="0"} 1.7e+09
vllm:prompt_tokens_by_source_total{source="local_compute"} 3
python_gc_objects 7
vllm:num_preemptions_total NaN
broken{
vllm:generation_tokens_total{engine="0"}

"""


def test_values_are_summed_over_engines_and_nonsense_is_skipped() -> None:
    assert parse(TEXT) == {
        "vllm:prompt_tokens_total": 1_500_010.0,
        "vllm:prompt_tokens_created": 1.7e9,
        "vllm:prompt_tokens_by_source_total": 3.0,
        "python_gc_objects": 7.0,
    }


def test_missing_and_shrinking_counters_are_unknown() -> None:
    name = NAMES["prompt_tokens"]
    assert difference({name: 5.0}, {name: 8.0}) == ServerCounters(prompt_tokens=3.0)
    assert difference({name: 5.0}, {name: 4.0}) == ServerCounters()
    assert difference({}, {name: 4.0}) == ServerCounters()


def target(port: int) -> Target:
    return Target("127.0.0.1", port, stall_s=5, deadline_ns=2**62)


def test_a_server_without_metrics_has_no_counters() -> None:
    async def go() -> None:
        async with Stub(metrics=False) as stub:
            assert await scrape(target(stub.port)) == {}
            assert difference({}, await settle(target(stub.port))) == ServerCounters()

    asyncio.run(go())


def test_a_server_that_is_gone_is_an_error_that_says_so() -> None:
    async def go() -> None:
        async with Stub() as stub:
            port = stub.port
        with pytest.raises(ConnectionError, match="GET /metrics"):
            await scrape(target(port))

    asyncio.run(go())
