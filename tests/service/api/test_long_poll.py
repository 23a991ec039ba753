"""A held lease call: answered when work comes, ended when the caller or the controller goes. The clock stands still, so
that whatever ends such a call here was no timeout."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from service.actions import lease
from service.api import agent
from tests.service.api import things
from tests.service.api.attempts import AGENT, bearing
from tests.service.api.conftest import Bearer
from tests.service.live import Live, serving

LIMIT_S = 20.0
MANY = 60
"""More than there are threads to run endpoints in."""
WANTED = {"request_id": "lrq_00000001", "boot_id": things.BOOT, "slot": 0, "wait_s": 25}


class Tries:
    """Counts calls of the lease action, and says when the first one found nothing."""

    def __init__(self) -> None:
        self.count = 0
        self.held = threading.Event()

    def try_lease(self, *arguments: Any) -> Any:
        self.count += 1
        found = _real(*arguments)
        if found is None:
            self.held.set()
        return found


_real = lease.try_lease


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> Tries:
    found = Tries()
    monkeypatch.setattr(lease, "try_lease", found.try_lease)
    return found


@pytest.fixture
def live(app: FastAPI) -> Iterator[Live]:
    with serving(app) as found:
        yield found


@pytest.fixture
def http(live: Live) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=live.url, trust_env=False, timeout=LIMIT_S) as found:
        yield found


@pytest.fixture
def runner(http: httpx.Client, bearer: Bearer) -> dict[str, str]:
    made = http.post("/api/v1/runners/enrolment-tokens", json={}, headers=bearer("operator")).json()
    answer = http.post(f"{AGENT}/enrol", json=things.ENROL, headers=bearing(made["token"])).json()
    return bearing(answer["token"])


class Held:
    """A lease call under way in a thread."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self.answer: httpx.Response | None = None
        self.thread = threading.Thread(target=self._call, args=(url, headers))
        self.thread.start()

    def _call(self, url: str, headers: dict[str, str]) -> None:
        self.answer = httpx.post(f"{url}{AGENT}/lease", json=WANTED, headers=headers, timeout=LIMIT_S, trust_env=False)

    def wait(self) -> httpx.Response:
        self.thread.join(LIMIT_S)
        assert self.answer is not None, "the held call was not answered"
        return self.answer


def test_work_that_comes_while_the_call_is_held_is_leased(
    live: Live, http: httpx.Client, runner: dict[str, str], bearer: Bearer, tries: Tries
) -> None:
    held = Held(live.url, runner)
    assert tries.held.wait(LIMIT_S)
    for group, body in (
        ("builds", things.BUILD),
        ("builds", things.OTHER_BUILD),
        ("recipes", things.RECIPE),
        ("workloads", things.WORKLOAD),
        ("requests", things.COMPARISON),
    ):
        assert http.post(f"/api/v1/{group}", json=body, headers=bearer("submitter")).is_success
    answer = held.wait()
    assert answer.status_code == 200
    assert answer.json()["build"]["name"] == "v0.18.0"


def test_a_call_ends_empty_when_its_time_is_over(
    live: Live, runner: dict[str, str], tries: Tries, clock: things.StillClock
) -> None:
    held = Held(live.url, runner)
    assert tries.held.wait(LIMIT_S)
    clock.move(WANTED["wait_s"] + 1.0)  # type: ignore[operator]
    assert held.wait().status_code == 204


def test_a_held_call_ends_at_once_when_the_controller_stops(live: Live, runner: dict[str, str], tries: Tries) -> None:
    held = Held(live.url, runner)
    assert tries.held.wait(LIMIT_S)
    live.stop()
    assert held.wait().status_code == 204
    assert live.ended.wait(LIMIT_S)


def test_a_caller_that_hangs_up_gets_no_lease_made(
    live: Live, http: httpx.Client, runner: dict[str, str], tries: Tries, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = threading.Event()
    poll = agent._poll

    async def watched(*arguments: Any) -> Any:
        found = await poll(*arguments)
        left.set()
        return found

    monkeypatch.setattr(agent, "_poll", watched)
    asyncio.run(_hang_up(live.url, runner, tries))
    assert left.wait(LIMIT_S), "the controller still polls for a caller that is gone"
    before = tries.count
    assert http.get("/api/v1/health").status_code == 200
    assert tries.count == before


async def _hang_up(url: str, headers: dict[str, str], tries: Tries) -> None:
    async with httpx.AsyncClient(timeout=LIMIT_S, trust_env=False) as client:
        call = asyncio.create_task(client.post(f"{url}{AGENT}/lease", json=WANTED, headers=headers))
        assert await asyncio.to_thread(tries.held.wait, LIMIT_S)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call


def test_other_calls_are_answered_while_many_are_held(
    live: Live, http: httpx.Client, runner: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived = threading.Semaphore(0)
    poll = agent._poll

    async def counted(*arguments: Any) -> Any:
        arrived.release()
        return await poll(*arguments)

    monkeypatch.setattr(agent, "_poll", counted)
    held = [Held(live.url, runner) for _ in range(MANY)]
    assert all(arrived.acquire(timeout=LIMIT_S) for _ in held)
    assert http.get("/api/v1/builds").status_code == 200
    live.stop()
    assert {call.wait().status_code for call in held} == {204}
