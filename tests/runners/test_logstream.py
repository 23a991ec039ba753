"""The attempt's log on its way: whole, in order, and never in the way."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from runners import logstream
from runners.clock import SystemClock
from runners.controller import Controller, Retry
from runners.logstream import LogStream
from service.contract.lease import Lease
from tests.runners.fake_controller import FakeController, Refusal

MakeLease = Callable[..., Lease]


@pytest.fixture
def lease(make_lease: MakeLease, controller: FakeController) -> Lease:
    lease = make_lease()
    controller.change(lambda memory: memory.given.update(x=lease))
    return lease


def _stream(controller: FakeController, lease: Lease, folder: Path, work: Callable[[LogStream], list[str]]) -> bytes:
    """Let ``work`` say things; after each of the lines that it returns (as an action) the stream is sent."""

    async def body() -> None:
        client = Controller(controller.url, "bkr_test", clock=SystemClock(), retry=Retry(0.01, 0.02))
        stream = LogStream(lease, folder, client, SystemClock())
        try:
            for line in work(stream):
                stream.say(line)
                await stream.finish()
        finally:
            await client.aclose()

    asyncio.run(body())
    return controller.memory.logs.get(lease.attempt_id, b"")


def test_own_lines_and_whole_lines_of_the_server_arrive_in_order(
    controller: FakeController, lease: Lease, tmp_path: Path
) -> None:
    (tmp_path / "server.log").write_bytes(b"one\ntwo\nhal")
    got = _stream(controller, lease, tmp_path, lambda stream: ["start", "ready"])
    assert [line.split(" ", 1)[1] for line in got.decode().splitlines()] == ["start", "| one", "| two", "ready"]


def test_after_a_mismatch_it_goes_on_where_the_controller_is(
    controller: FakeController, lease: Lease, tmp_path: Path
) -> None:
    controller.change(lambda memory: memory.logs.update({lease.attempt_id: b"0123456789"}))
    got = _stream(controller, lease, tmp_path, lambda stream: ["a" * 40, "b"])
    assert got.startswith(b"0123456789")
    assert got.endswith(b" b\n")


def test_trouble_loses_nothing(controller: FakeController, lease: Lease, tmp_path: Path) -> None:
    def work(stream: LogStream) -> list[str]:
        controller.change(lambda memory: memory.failing.update(log=Refusal(503, "busy")))
        stream.say("first")
        return ["second"]

    assert _stream(controller, lease, tmp_path, work) == b""
    controller.change(lambda memory: memory.failing.clear())
    got = _stream(controller, lease, tmp_path, lambda stream: ["third"])
    assert [line.split(b" ")[1] for line in got.splitlines()] == [b"first", b"second", b"third"]


def test_a_refusal_ends_the_stream_and_not_the_attempt(
    controller: FakeController, lease: Lease, tmp_path: Path
) -> None:
    controller.change(lambda memory: memory.lost.add(lease.attempt_id))
    _stream(controller, lease, tmp_path, lambda stream: ["first", "second"])
    assert controller.memory.order == []
    assert b"second" in (tmp_path / "attempt.log").read_bytes()


def test_a_log_without_end_is_cut_with_a_word_about_it(
    controller: FakeController, lease: Lease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logstream, "CAP_BYTES", 1000)
    got = _stream(controller, lease, tmp_path, lambda stream: ["x" * 300 for _ in range(10)])
    assert len(got) < 1200
    assert got.endswith(logstream.CUT)
