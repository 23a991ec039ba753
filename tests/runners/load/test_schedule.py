"""The closed loop keeps its concurrency, sends nothing twice, stops when there is no hope, and measures the truth."""

import asyncio
import itertools
import time
from collections.abc import Coroutine
from typing import Any

import numpy as np
import pytest
import uvloop

from runners.load import prompts, wire
from runners.load.record import Ticket, record
from runners.load.schedule import GIVEN_UP, Loop, Shots, Target, looks_failed
from runners.load.wire import Ending
from service.ruler.metrics import gaps_ms
from service.ruler.rawlog import Outcome, Role
from tests.runners.load.stub import Answer, Stub, clean

FAR_NS = 2**62


def run(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


def target(port: int, stall_s: float = 30, deadline_ns: int = FAR_NS) -> Target:
    return Target("127.0.0.1", port, stall_s, deadline_ns)


def tickets(port: int, count: int, output_tokens: int = 5) -> list[Ticket]:
    made = []
    for n in range(count):
        ids = np.array([3, 4, 100 + n], dtype=np.uint32)
        body = prompts.body("m", output_tokens, 0, prompts.encode(ids), b"")
        made.append(Ticket(n, Role.MEASURED, 3, wire.post("127.0.0.1", port, "/v1/completions", body)))
    return made


def outcomes(shots: Shots) -> list[Outcome]:
    return [record(ticket, exchange, 0).record.outcome for ticket, exchange in shots.done]


def overlap(shots: Shots) -> int:
    marks = sorted([(e.send_ns, 1) for _, e in shots.done] + [(e.end_ns, -1) for _, e in shots.done])
    return max(itertools.accumulate(step for _, step in marks))


def test_the_concurrency_is_held_and_never_exceeded_on_connections_that_are_kept() -> None:
    async def go() -> None:
        told: list[int] = []
        async with Stub() as stub:
            shots = await Loop(target(stub.port), 4, told.append).run(tickets(stub.port, 14))
            assert stub.connections == 4
            assert [a.prompt for a in stub.answers] == [[3, 4, 100 + n] for n in range(14)]
        assert outcomes(shots) == [Outcome.OK] * 14
        assert overlap(shots) == 4
        assert sorted(told) == list(range(1, 15))
        assert (shots.given_up, shots.client.reconnects) == ("", 0)
        assert [e.send_ns for _, e in shots.done] == sorted(e.send_ns for _, e in shots.done)

    run(go())


def test_a_connection_that_the_server_closed_between_requests_is_opened_again_once() -> None:
    async def closing(answer: Answer) -> None:
        answer.chunked = False
        await clean(answer)

    async def go() -> None:
        async with Stub(closing) as stub:
            shots = await Loop(target(stub.port), 2, lambda _: None).run(tickets(stub.port, 6))
            assert len(stub.answers) == 6
        assert outcomes(shots) == [Outcome.OK] * 6
        assert shots.client.reconnects == 4

    run(go())


def test_nothing_is_sent_twice_when_a_connection_breaks() -> None:
    async def breaking(answer: Answer) -> None:
        if answer.number == 2:
            answer.reset()
            return
        await clean(answer)

    async def go() -> None:
        async with Stub(breaking) as stub:
            shots = await Loop(target(stub.port), 2, lambda _: None).run(tickets(stub.port, 6))
            assert [a.prompt[2] for a in stub.answers] == [100 + n for n in range(6)]
        assert outcomes(shots).count(Outcome.OK) == 5
        assert outcomes(shots).count(Outcome.RESET) == 1

    run(go())


def test_a_server_that_dies_ends_the_loop_at_once() -> None:
    async def go() -> None:
        async with Stub() as stub:

            async def dying(answer: Answer) -> None:
                if answer.number < 3:
                    await clean(answer)
                    return
                answer.head()
                stub.stop_listening()
                answer.reset()

            stub.script = dying
            shots = await Loop(target(stub.port), 2, lambda _: None).run(tickets(stub.port, 50))
        assert shots.given_up.startswith("the server is gone")
        assert len(shots.done) < 10
        assert Outcome.UNREACHABLE in outcomes(shots)

    run(go())


def test_requests_that_all_fail_end_the_loop() -> None:
    async def refusing(answer: Answer) -> None:
        answer.head("400 Bad Request", "application/json")
        answer.write(b"{}")
        answer.close_chunks()

    async def go() -> None:
        async with Stub(refusing) as stub:
            shots = await Loop(target(stub.port), 3, lambda _: None).run(tickets(stub.port, 500))
        assert shots.given_up == "4 requests in a row failed"
        assert len(shots.done) <= 6
        assert all(looks_failed(exchange) for _, exchange in shots.done)

    run(go())


def test_an_error_inside_a_stream_counts_as_failed_and_the_word_in_a_text_does_not() -> None:
    async def go(in_band: bool) -> Shots:
        async def script(answer: Answer) -> None:
            answer.head()
            for _ in range(answer.wanted):
                answer.token(text='say "error"')
            if in_band:
                answer.write(b'data: {"error": {"message": "no"}}\n\n')
            answer.end(usage=False)

        async with Stub(script) as stub:
            return await Loop(target(stub.port), 1, lambda _: None).run(tickets(stub.port, 3))

    for in_band in (True, False):
        with asyncio.Runner() as runner:
            shots = runner.run(go(in_band))
        assert {looks_failed(exchange) for _, exchange in shots.done} == {in_band}


def test_the_deadline_ends_what_is_under_way_and_keeps_what_was_done() -> None:
    async def go() -> None:
        async def hanging(answer: Answer) -> None:
            if answer.number < 2:
                await clean(answer)
                return
            answer.head()
            answer.token()
            await answer.writer.drain()
            await answer.writer.wait_closed()

        async with Stub(hanging) as stub:
            deadline_ns = time.monotonic_ns() + 700_000_000
            loop = Loop(target(stub.port, deadline_ns=deadline_ns), 2, lambda _: None)
            shots = await loop.run(tickets(stub.port, 20))
        assert shots.given_up == "the deadline passed"
        assert outcomes(shots) == [Outcome.OK] * 2 + [Outcome.DEADLINE] * 2
        assert [e.detail for _, e in shots.done[2:]] == [GIVEN_UP] * 2

    run(go())


def test_without_a_server_nothing_is_sent() -> None:
    async def go() -> None:
        async with Stub() as stub:
            port = stub.port
        shots = await Loop(target(port), 2, lambda _: None).run(tickets(port, 3))
        assert shots.done == []
        assert "can't be reached" in shots.given_up

    run(go())


def test_a_request_is_never_sent_on_a_connection_that_is_not_usable() -> None:
    async def go() -> None:
        async with Stub() as stub:
            connection = await wire.connect("127.0.0.1", stub.port, time.monotonic_ns)
            assert connection.usable
            await connection.close()
            assert not connection.usable
            with pytest.raises(RuntimeError, match="not usable"):
                await connection.exchange([b"GET / HTTP/1.1\r\n\r\n"])

    run(go())


def test_bytes_that_nobody_asked_for_do_not_pass_for_an_answer() -> None:
    async def chatty(answer: Answer) -> None:
        await clean(answer)
        answer.writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    async def go() -> None:
        async with Stub(chatty) as stub:
            shots = await Loop(target(stub.port), 1, lambda _: None).run(tickets(stub.port, 4))
        assert set(outcomes(shots)) == {Outcome.OK}
        assert all(exchange.ending is Ending.COMPLETE for _, exchange in shots.done)

    run(go())


@pytest.mark.timing
def test_a_known_schedule_is_measured_as_it_was_sent() -> None:
    gap_s, tokens, streams = 0.004, 150, 4

    async def paced(answer: Answer) -> None:
        loop = asyncio.get_running_loop()
        answer.head()
        begin = loop.time()
        for n in range(tokens):
            await asyncio.sleep(begin + n * gap_s - loop.time())
            answer.token()
        answer.end()

    async def go() -> None:
        async with Stub(paced) as stub:
            shots = await Loop(target(stub.port), streams, lambda _: None).run(tickets(stub.port, streams, tokens))
            truth = [np.diff(a.sent_ns) / 1e6 for a in stub.answers]
        measured = [gaps_ms(record(t, e, 0).record) for t, e in shots.done]
        assert [len(m) for m in measured] == [tokens - 1] * streams
        ratio = np.mean(np.concatenate(measured)) / np.mean(np.concatenate(truth))
        assert ratio == pytest.approx(1, abs=0.01)
        ratio_p50 = np.median(np.concatenate(measured)) / np.median(np.concatenate(truth))
        assert ratio_p50 == pytest.approx(1, abs=0.03)

    run(go())
