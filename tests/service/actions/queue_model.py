"""The queue as it is meant to be, in plain Python: no database, no transactions, times in whole milliseconds."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

LIVE = ("leased", "preparing", "serving", "warming", "measuring", "evaluating", "uploading")
OPEN_JOB = ("waiting", "queued", "active")
TTL_MS = 180_000
LOST_AFTER_MS = 180_000
RETRIES = {"spec_invalid": 0, "image_pull": 3, "server_start": 1, "runner_lost": 3, "invalid_measurement": 1}
DELAYS_MS = {"image_pull": 10_000}
MAX_BURNED = 6
ELSEWHERE = ("server_start",)


@dataclass
class ModelRequest:
    id: str
    priority: int
    created: int
    state: str = "open"
    cancel: bool = False


@dataclass
class ModelJob:
    id: str
    request: ModelRequest
    block: int
    position: int
    state: str
    fence: int = 0
    slot: str | None = None
    cancel: bool = False
    not_before: int | None = None
    avoids: str | None = None

    @property
    def order(self) -> tuple[str, int, int]:
        return (self.request.id, self.block, self.position)


@dataclass
class ModelAttempt:
    id: str
    job: ModelJob
    fence: int
    runner: "ModelRunner"
    slot: str
    lease_until: int
    state: str = "leased"
    failure: str | None = None
    result: Any = None
    """What was handed in, if anything was."""


@dataclass
class ModelRunner:
    id: str
    slots: list[str]
    state: str = "enrolled"
    since: int = 0
    seen: int | None = None
    drain: bool = False

    def become(self, state: str, now: int) -> None:
        if self.state != state:
            self.state, self.since = state, now


@dataclass
class QueueModel:
    now: int = 0
    requests: dict[str, ModelRequest] = field(default_factory=dict)
    jobs: dict[str, ModelJob] = field(default_factory=dict)
    attempts: dict[str, ModelAttempt] = field(default_factory=dict)
    runners: dict[str, ModelRunner] = field(default_factory=dict)
    owner: dict[str, str | None] = field(default_factory=dict)
    """Which attempt a slot belongs to."""

    def candidate(self, slot: str) -> ModelJob | None:
        """The job that a free slot is to get."""
        fitting = [
            job
            for job in self.jobs.values()
            if job.state == "queued"
            and job.slot in (None, slot)
            and job.avoids != slot
            and (job.not_before is None or job.not_before <= self.now)
        ]
        return min(
            fitting,
            key=lambda j: (-j.request.priority, j.slot != slot, j.request.created, *j.order),
            default=None,
        )

    def hear(self, runner: ModelRunner, *, reborn: bool) -> None:
        """A runner calls."""
        if reborn:
            mine = [a for a in self.attempts.values() if a.runner is runner and a.state in LIVE]
            for attempt in sorted(mine, key=lambda a: a.job.order):
                self.burn(attempt, "expired", "runner_lost")
            self.settle_runner(runner, draining=False)
        runner.seen = self.now

    def settle_runner(self, runner: ModelRunner, *, draining: bool) -> None:
        if runner.state in ("enrolled", "offline"):
            runner.become("online", self.now)
        runner.become("draining" if draining or runner.drain else "online", self.now)

    def takes_work(self, runner: ModelRunner) -> bool:
        """What a lease request brings about besides a lease; returns whether it may get one."""
        if runner.state == "draining" and not runner.drain:
            return False
        self.settle_runner(runner, draining=False)
        return runner.state == "online"

    def begin(self, job: ModelJob, attempt_id: str, runner: ModelRunner, slot: str) -> ModelAttempt:
        job.state, job.fence, job.not_before = "active", job.fence + 1, None
        for other in self.jobs.values():
            same_block = other.request is job.request and other.block == job.block
            if other is job or (same_block and other.state == "waiting"):
                other.slot = slot
        attempt = ModelAttempt(attempt_id, job, job.fence, runner, slot, self.now + TTL_MS)
        self.attempts[attempt_id] = attempt
        self.owner[slot] = attempt_id
        return attempt

    def counts(self, attempt: ModelAttempt) -> bool:
        """Whether a result of this attempt would count now."""
        return (
            attempt.state in (*LIVE, "expired")
            and attempt.fence == attempt.job.fence
            and attempt.job.state in ("active", "queued")
        )

    def complete(self, attempt: ModelAttempt) -> None:
        self._end(attempt, "completed")
        job = attempt.job
        job.state, job.not_before = "done", None
        for other in self.jobs.values():
            follows = other.request is job.request and (other.block, other.position) == (job.block, job.position + 1)
            if follows and other.state == "waiting":
                other.state = "queued"
        self._settle(job.request)

    def burn(self, attempt: ModelAttempt, state: str, failure: str) -> None:
        job = attempt.job
        earlier = [
            a.failure
            for a in self.attempts.values()
            if a.job is job and a is not attempt and a.state in ("failed", "expired") and a.failure
        ]
        times = Counter(earlier)[failure]
        self._end(attempt, state)
        attempt.failure = failure
        if job.cancel or job.request.cancel:
            job.state = "cancelled"
            self._settle(job.request)
        elif len(earlier) + 1 >= MAX_BURNED or times >= RETRIES[failure]:
            job.state = "failed"
            if job.request.state == "open":
                job.request.state = "failed"
                self._cancel_open(job.request)
        else:
            if failure in ELSEWHERE and self._others(attempt.slot):
                job.slot, job.avoids = None, attempt.slot
            job.state = "queued"
            delay = DELAYS_MS.get(failure, 0) * 2**times
            job.not_before = self.now + delay if delay else None

    def give_back(self, attempt: ModelAttempt) -> None:
        job = attempt.job
        if job.cancel or job.request.cancel:
            self._end(attempt, "cancelled")
            job.state = "cancelled"
            self._settle(job.request)
        else:
            self._end(attempt, "released")
            job.state, job.not_before = "queued", None

    def cancel(self, request: ModelRequest) -> None:
        if not request.cancel:
            request.cancel = True
            self._cancel_open(request)
            self._settle(request)

    def reap(self) -> None:
        overdue = [a for a in self.attempts.values() if a.state in LIVE and a.lease_until < self.now]
        for attempt in sorted(overdue, key=lambda a: (a.lease_until, a.id)):
            self.burn(attempt, "expired", "runner_lost")
        busy = {a.runner.id for a in self.attempts.values() if a.state in LIVE}
        for runner in self.runners.values():
            silent = runner.seen is not None and runner.seen < self.now - LOST_AFTER_MS
            if runner.state in ("online", "draining") and silent and runner.id not in busy:
                runner.become("offline" if runner.state == "draining" else "lost", self.now)
        for runner in self.runners.values():
            if runner.state in ("lost", "offline", "draining") and self.now - runner.since > TTL_MS:
                for job in self.jobs.values():
                    if job.slot in runner.slots and job.state in ("waiting", "queued"):
                        job.slot = None
        for job in self.jobs.values():
            if job.state == "queued" and job.avoids is not None and not self._others(job.avoids):
                job.avoids = None

    def _others(self, slot: str) -> bool:
        """Whether there is another slot that takes work than this one."""
        able = [runner for runner in self.runners.values() if runner.state == "online" and not runner.drain]
        return any(other != slot for runner in able for other in runner.slots)

    def _end(self, attempt: ModelAttempt, state: str) -> None:
        attempt.state = state
        if self.owner[attempt.slot] == attempt.id:
            self.owner[attempt.slot] = None

    def _cancel_open(self, request: ModelRequest) -> None:
        for job in self.jobs.values():
            if job.request is request and job.state in ("waiting", "queued"):
                job.state = "cancelled"
            elif job.request is request and job.state == "active":
                job.cancel = True

    def _settle(self, request: ModelRequest) -> None:
        states = {job.state for job in self.jobs.values() if job.request is request}
        if request.state == "open" and not states & set(OPEN_JOB):
            request.state = "done" if states == {"done"} else "cancelled"
