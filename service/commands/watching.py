"""Following a request live: a table that changes in a terminal, one line per change elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Protocol

from rich.live import Live

from service.commands.client import Client, Refused, Unreachable
from service.commands.output import console, make_table, plain, print_line
from service.contract.clock import Clock

POLL_S = 1.0
REFRESH_EVERY = 5
"""Rounds after which a request is read again although no event came: progress within a step is no event."""
PATIENCE_S = 180.0
"""How long a controller may be away, for a restart, before the watch gives up."""
SHOWN = (("tpot_p50_ms", "TPOT p50", "ms"), ("itl_p50_ms", "ITL p50", "ms"), ("ttft_p50_ms", "TTFT p50", "ms"))
THROUGHPUT = "output_tok_s"
COLUMNS = ("block", "build", "slot", "state", "step", "elapsed>", "TPOT p50 ms>", "ITL p50 ms>", "TTFT ms>", "tok/s>")
Job = dict[str, Any]


class Watch:
    """A request as it is now: its view, and the numbers of each launch that ended."""

    def __init__(self, client: Client, request_id: str, clock: Clock) -> None:
        self.client = client
        self.clock = clock
        self.request: dict[str, Any] = client.get(f"requests/{request_id}")
        self.launches: dict[str, dict[str, Any]] = {}
        self._after = 0
        self._rounds = 0
        self._look_at_launches()

    @property
    def open(self) -> bool:
        return bool(self.request["state"] == "open")

    def update(self) -> bool:
        """Ask for news; return whether the view was read again. Raises Unreachable and Refused."""
        self._rounds += 1
        news = self.client.get("events", after=self._after, request=self.request["id"], limit=1000)
        if not news and self._rounds % REFRESH_EVERY:
            return False
        self.request = self.client.get(f"requests/{self.request['id']}")
        self._look_at_launches()
        if news:
            self._after = news[-1]["id"]
        return True

    def _look_at_launches(self) -> None:
        for job in self.request["jobs"]:
            launch_id = job["launch_id"]
            if launch_id and launch_id not in self.launches:
                self.launches[launch_id] = self.client.get(f"launches/{launch_id}")

    def elapsed_s(self, job: Job) -> float | None:
        """Seconds since the job's newest attempt began, or that it took."""
        attempt = job["attempt"]
        if attempt is None:
            return None
        ended = attempt["ended_at"]
        end = datetime.fromisoformat(ended) if ended else self.clock.now()
        return max(0.0, (end - datetime.fromisoformat(attempt["created_at"])).total_seconds())


def follow(watch: Watch, say: Callable[[str], None] = print_line) -> dict[str, Any]:
    """Show a request until it ends, and return it. Raises Unreachable when the controller stays away."""
    say(headline(watch.request))
    show = _table if console().is_terminal else _lines
    with show(watch, say) as changed:
        for _ in rounds(watch, say):
            changed()
    return watch.request


def wait(watch: Watch) -> dict[str, Any]:
    """Wait in silence for a request's end, and return it. Raises as ``follow`` does."""
    for _ in rounds(watch, lambda _text: None):
        pass
    return watch.request


class Followed(Protocol):
    """What can be followed: it is open until it ends, and it can be asked for news."""

    @property
    def open(self) -> bool: ...

    @property
    def clock(self) -> Clock: ...

    def update(self) -> bool: ...


def rounds(watch: Followed, say: Callable[[str], None]) -> Iterator[None]:
    """Yield once per round until what is followed has ended; a controller that is away for a restart is waited for.

    Raises Unreachable or Refused when it stays away, and Refused at once for an answer that won't change.
    """
    away_since: float | None = None
    while True:
        yield
        if not watch.open:
            return
        time.sleep(POLL_S)
        try:
            watch.update()
            away_since = None
        except (Unreachable, Refused) as error:
            if isinstance(error, Refused) and error.problem.get("status", 500) < 500:
                raise
            now = watch.clock.monotonic_s()
            if away_since is None:
                away_since = now
                say("The controller does not answer; trying again.")
            if now - away_since > PATIENCE_S:
                raise


@contextmanager
def _table(watch: Watch, _say: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    with Live(console=console(), refresh_per_second=4) as live:
        yield lambda: live.update(make_table(COLUMNS, [_row(watch, job) for job in watch.request["jobs"]]))


@contextmanager
def _lines(watch: Watch, say: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    seen: dict[str, tuple[Any, ...]] = {}
    began = watch.clock.monotonic_s()

    def changed() -> None:
        for job in watch.request["jobs"]:
            attempt = job["attempt"] or {}
            now = (job["state"], attempt.get("id"), attempt.get("state"), _phase(job), job["launch_id"])
            if seen.get(job["id"]) != now and job["state"] != "waiting":
                say(f"{watch.clock.monotonic_s() - began:6.0f} s  {describe(watch, job)}")
            seen[job["id"]] = now

    yield changed


def why_it_waits(client: Client, request: dict[str, Any]) -> str | None:
    """Return why nothing of a request can run now: no runner that is online takes it; None if one does."""
    runners = [one for one in client.get("runners") if one["state"] in ("online", "draining")]
    hardware, kind = request["hardware"], request["build_kind"]
    if any(hardware in one["hardware"] and kind in one["build_kinds"] for one in runners):
        return None
    offered = "; ".join(f"{one['name']}: {', '.join(one['hardware'])}" for one in runners) or "no runner is online"
    return f"It waits: no runner that is online takes {kind} builds on hardware {hardware} ({offered})."


def headline(request: dict[str, Any]) -> str:
    """Return what a request is about, in one line."""
    factor = request["time_compression"]
    kind = f"simulated, time compressed {factor:g}×" if request["build_kind"] == "simulated" else "real"
    return (
        f"{request['id']}: {request['base']['name']} → {request['head']['name']}, {len(request['jobs'])} launches, "
        f"{request['recipe']} · {request['workload']} · {request['hardware']} ({kind})"
    )


def describe(watch: Watch, job: Job) -> str:
    """Return one line about a job: its build and place, what it does, and what it measured."""
    doing = _phase(job) if job["state"] == "active" else _step(job)
    parts = (_place(job), job["build"]["name"], _slot(job), _state(job), doing, _found(watch, job))
    return "  ".join(part for part in parts if part)


def _row(watch: Watch, job: Job) -> list[Any]:
    elapsed_s = watch.elapsed_s(job)
    metrics = watch.launches.get(job["launch_id"] or "", {}).get("metrics", {})
    values = [metrics.get(name) for name in [*(name for name, _, _ in SHOWN), THROUGHPUT]]
    return [
        _place(job),
        job["build"]["name"],
        _slot(job) or "–",
        _state(job),
        _step(job),
        "–" if elapsed_s is None else f"{elapsed_s:.0f} s",
        *("–" if value is None else f"{value:.2f}" for value in values),
    ]


def _place(job: Job) -> str:
    return f"{job['block'] + 1}.{job['position'] + 1}"


def _slot(job: Job) -> str:
    attempt = job["attempt"]
    return f"{attempt['runner_name']}/{attempt['slot_index']}" if attempt else ""


def _state(job: Job) -> str:
    attempt = job["attempt"]
    if job["state"] == "active" and attempt:
        return str(attempt["state"])
    if job["state"] == "queued" and attempt:
        return f"queued again after {attempt['state']}"
    return str(job["state"])


def _step(job: Job) -> str:
    attempt = job["attempt"]
    if job["state"] == "active" and attempt:
        progress = "" if attempt["progress"] is None else f" {attempt['progress']:.0%}"
        return plain(f"{attempt['step']}{progress} {attempt['detail']}".strip())
    failure = job["failure"] or (attempt or {}).get("failure") if job["state"] in ("failed", "queued") else None
    return plain(f"{failure['failure_class']} in {failure['step']}: {failure['message'][:200]}") if failure else ""


def _phase(job: Job) -> str:
    """What changes a few times a launch and not every second: the step, and which repetition it is at."""
    attempt = job["attempt"] or {}
    if attempt.get("state") == "measuring":
        return plain(attempt["detail"].partition(":")[0] or attempt["step"])
    return plain(attempt.get("step") or "")


def _found(watch: Watch, job: Job) -> str:
    launch = watch.launches.get(job["launch_id"] or "")
    if launch is None:
        return ""
    valid = sum(one["validity"] != "invalid" for one in launch["repetitions"])
    metrics = launch["metrics"]
    parts = [f"{label} {metrics[name]:.2f} {unit}" for name, label, unit in SHOWN if name in metrics]
    parts += [f"{metrics[THROUGHPUT]:.0f} tok/s"] if THROUGHPUT in metrics else []
    return f"{', '.join(parts)} ({valid} of {len(launch['repetitions'])} repetitions usable)".strip()
