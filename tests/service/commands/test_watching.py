"""Following a request: a line for what changes, patience with a controller that is away, and an end."""

from typing import Any, cast

import pytest

from service.commands import watching
from service.commands.client import Client, Refused, Unreachable
from tests.service.api.things import StillClock

Step = dict[str, Any] | Exception


def request(state: str = "open", **job: Any) -> dict[str, Any]:
    """A request with one job."""
    base = {"id": "job_1", "block": 0, "position": 1, "build": {"name": "v1"}, "state": "active", "attempt": None}
    jobs = [{**base, "failure": None, "launch_id": None, **job}]
    names = {"base": {"name": "v1"}, "head": {"name": "v2"}, "recipe": "r", "workload": "w", "hardware": "simulated"}
    return {"id": "req_1", "state": state, "build_kind": "simulated", "time_compression": 4.0, "jobs": jobs, **names}


def attempt(state: str, step: str, detail: str = "", progress: float | None = None) -> dict[str, Any]:
    times = {"created_at": "2026-01-02T03:04:00+00:00", "ended_at": None}
    place = {"id": "att_1", "runner_name": "node1", "slot_index": 0, "failure": None}
    return {**place, **times, "state": state, "step": step, "detail": detail, "progress": progress}


class Script:
    """A controller that answers from a list: one entry per round; each round moves the clock by ten seconds."""

    def __init__(self, clock: StillClock, *steps: Step) -> None:
        self.clock = clock
        self.steps = list(steps)
        self.launches = {"lau_1": {"metrics": {"tpot_p50_ms": 4.987}, "repetitions": [{"validity": "valid"}] * 3}}

    def get(self, path: str, **_: Any) -> Any:
        if path.startswith("launches/"):
            return self.launches[path.removeprefix("launches/")]
        if path == "events":
            self.clock.move(10)
            self.steps.pop(0)
            if isinstance(self.steps[0], Exception):
                raise self.steps[0]
            return [{"id": 1}]
        return self.steps[0]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StillClock:
    monkeypatch.setattr(watching, "POLL_S", 0)
    return StillClock()


def follow(clock: StillClock, *steps: Step) -> list[str]:
    said: list[str] = []
    script = cast(Client, Script(clock, *steps))
    watching.follow(watching.Watch(script, "req_1", clock), said.append)
    return said


def test_a_line_is_said_for_every_phase_and_none_for_progress_within_it(clock: StillClock) -> None:
    said = follow(
        clock,
        request(attempt=attempt("serving", "start", "INFO: loading")),
        request(attempt=attempt("serving", "start", "INFO: loaded")),
        request(attempt=attempt("measuring", "measure", "repetition 1 of 3: 0 of 16 requests", 0.0)),
        request(attempt=attempt("measuring", "measure", "repetition 1 of 3: 9 of 16 requests", 0.2)),
        request(attempt=attempt("measuring", "measure", "repetition 2 of 3: 0 of 16 requests", 0.4)),
        request("done", attempt=attempt("completed", "upload"), launch_id="lau_1"),
    )
    assert said[0] == "req_1: v1 → v2, 1 launches, r · w · simulated (simulated, time compressed 4×)"
    assert said[1:4] == [
        "     0 s  1.2  v1  node1/0  serving  start",
        "    20 s  1.2  v1  node1/0  measuring  repetition 1 of 3",
        "    40 s  1.2  v1  node1/0  measuring  repetition 2 of 3",
    ]
    assert said[4].endswith("TPOT p50 4.99 ms (3 of 3 repetitions usable)")
    assert len(said) == 5


def test_a_controller_that_comes_back_is_followed_on(clock: StillClock) -> None:
    away = Unreachable("nobody")
    busy = Refused({"status": 503, "code": "busy", "detail": "later"})
    said = follow(clock, request(), away, busy, away, request("done"))
    assert said.count("The controller does not answer; trying again.") == 1


def test_a_controller_that_stays_away_ends_the_watch(clock: StillClock) -> None:
    away = [Unreachable("nobody")] * 50
    with pytest.raises(Unreachable):
        follow(clock, request(), *away)


def test_a_refusal_ends_the_watch_at_once(clock: StillClock) -> None:
    gone = Refused({"status": 404, "code": "not_found", "detail": "gone"})
    with pytest.raises(Refused, match="gone"):
        follow(clock, request(), gone, request("done"))


def test_elapsed_is_the_attempts_own_time(clock: StillClock) -> None:
    watch = watching.Watch(cast(Client, Script(clock, request())), "req_1", clock)
    running = request(attempt=attempt("measuring", "measure"))["jobs"][0]
    assert watch.elapsed_s(running) == 5.0
    ended = {**running, "attempt": {**running["attempt"], "ended_at": "2026-01-02T03:05:30+00:00"}}
    assert watch.elapsed_s(ended) == 90.0
    assert watch.elapsed_s({**running, "attempt": None}) is None
