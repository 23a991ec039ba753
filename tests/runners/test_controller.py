"""The typed client: what is tried again, what surfaces as which exception, what goes over the wire."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from runners.clock import SystemClock
from runners.controller import Controller, Retry, Unreachable, checked, parse
from service.contract import errors
from service.contract.lease import Enrolment, Heartbeat, Lease, LeaseRequest
from service.contract.upload import ArtifactRef
from tests.runners.fake_controller import FakeController, Refusal

MakeLease = Callable[..., Lease]
BEAT = Heartbeat(agent_version="0", boot_id="boot_12345678", disk_free_bytes=1)


def _call(fake: FakeController, work: Callable[[Controller], Awaitable[Any]], lines: list[str] | None = None) -> Any:
    async def body() -> Any:
        told = lines if lines is not None else []
        client = Controller(fake.url, "bkr_test", clock=SystemClock(), retry=Retry(0.01, 0.02), on_trouble=told.append)
        try:
            return await work(client)
        finally:
            await client.aclose()

    return asyncio.run(body())


@pytest.mark.parametrize("status", [429, 502, 503, 504, 507])
def test_transient_trouble_is_tried_again_until_it_is_over_with_a_visible_line(
    controller: FakeController, status: int
) -> None:
    controller.change(lambda memory: memory.failing.update(heartbeat=Refusal(status, "whatever")))
    lines: list[str] = []

    class Once(list[str]):
        def append(self, line: str) -> None:
            lines.append(line)
            if len(lines) == 3:
                controller.change(lambda memory: memory.failing.clear())

    answer = _call(controller, lambda client: client.heartbeat(BEAT), Once())
    assert answer.directive == "continue"
    assert len(lines) == 3
    assert str(status) in lines[0]


def test_a_bounded_call_gives_up_in_time(controller: FakeController) -> None:
    controller.change(lambda memory: memory.failing.update(heartbeat=Refusal(503, "busy")))
    with pytest.raises(Unreachable, match="503"):
        _call(controller, lambda client: client.heartbeat(BEAT, give_up_s=0.05))


def test_nobody_at_the_address_is_said_with_the_address() -> None:
    with FakeController() as gone:
        pass
    with pytest.raises(Unreachable, match=f"no answer from {gone.url}"):
        _call(gone, lambda client: client.heartbeat(BEAT, give_up_s=0))


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (409, "lease_lost", errors.LeaseLost),
        (409, "result_conflict", errors.ResultConflict),
        (426, "protocol_unsupported", errors.ProtocolUnsupported),
        (401, "token_invalid", errors.TokenInvalid),
        (418, "never_heard_of", errors.BackslideError),
        (500, "internal", errors.BackslideError),
    ],
)
def test_every_other_refusal_surfaces_as_the_exception_of_its_code(
    controller: FakeController, status: int, code: str, kind: type[errors.BackslideError]
) -> None:
    controller.change(lambda memory: memory.failing.update(heartbeat=Refusal(status, code, hint=3)))
    with pytest.raises(errors.BackslideError) as caught:
        _call(controller, lambda client: client.heartbeat(BEAT))
    assert type(caught.value) is kind
    assert caught.value.details == {"hint": 3}
    assert caught.value.message == f"fake: {code}"


def test_an_answer_that_is_no_problem_document_names_the_call() -> None:
    request = httpx.Request("POST", "http://127.0.0.1/api/v1/agent/lease")
    with pytest.raises(errors.BackslideError, match="POST /api/v1/agent/lease was answered with 404"):
        checked(httpx.Response(404, text="<html>", request=request))
    with pytest.raises(errors.ProtocolUnsupported, match="not understood"):
        parse(Enrolment, httpx.Response(200, text="<html>", request=request))


def test_the_controllers_wish_to_wait_is_honoured() -> None:
    retry = Retry(first_s=1, cap_s=8)
    assert retry.pause_s(1, 5.0) == 5.0
    assert retry.pause_s(1, 10_000.0) == 80.0, "but not without end"
    pauses = [retry.pause_s(failures) for failures in range(1, 40)]
    assert all(0.5 <= pause <= 8 for pause in pauses)
    assert min(pauses[4:]) >= 4


def test_no_work_is_none(controller: FakeController) -> None:
    request = LeaseRequest(request_id="lrq_1234", boot_id="boot_1234", slot=0, wait_s=0)
    assert _call(controller, lambda client: client.lease(request)) is None


def test_a_file_is_sent_whole_with_the_attempts_token(
    controller: FakeController, make_lease: MakeLease, tmp_path: Path
) -> None:
    lease = make_lease()
    controller.change(lambda memory: memory.given.update(x=lease))
    data = bytes(range(256)) * 12_000
    (tmp_path / "file").write_bytes(data)
    ref = ArtifactRef(name="rep-1.raw", sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))
    _call(controller, lambda client: client.put_artifact(lease, ref, tmp_path / "file"))
    assert controller.memory.artifacts == {(lease.attempt_id, "rep-1.raw"): data}
    assert lease.token in controller.memory.tokens


def test_a_log_chunk_at_the_wrong_place_says_where_the_right_one_is(
    controller: FakeController, make_lease: MakeLease
) -> None:
    lease = make_lease()
    controller.change(lambda memory: memory.given.update(x=lease))
    assert _call(controller, lambda client: client.append_log(lease, 0, b"abc")).size_bytes == 3
    with pytest.raises(errors.OffsetMismatch) as caught:
        _call(controller, lambda client: client.append_log(lease, 1, b"x"))
    assert caught.value.details == {"size_bytes": 3}
