"""The agent: one loop that beats, asks for work for each free slot, and makes the attempts it gets."""

import asyncio
import logging
import shutil
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from runners import AGENT_VERSION
from runners.attempt import Attempt, Surroundings
from runners.controller import Controller, Retry, Unreachable
from runners.identity import RunnerIdentity
from runners.journal import Journal
from runners.launch.process import free_port
from runners.measurement import Equipment, Load
from runners.recovery import Recovery, sweep
from runners.settings import RunnerSettings
from runners.steps import end
from service.contract import errors, ids
from service.contract.clock import Clock
from service.contract.lease import Directive, Heartbeat, Lease, LeaseRequest, Release, ReleaseReason

PAUSE_S = 10.0
"""Before asking again after something went wrong that is not the connection."""
LAST_CALLS_S = 5.0
FATAL = (errors.TokenMissing, errors.TokenInvalid, errors.Forbidden, errors.ProtocolUnsupported)

log = logging.getLogger("backslide.runner")


class Agent:
    """One life of a runner. ``run`` is called once. Raises OSError when the state directory can't be used."""

    def __init__(
        self,
        settings: RunnerSettings,
        identity: RunnerIdentity,
        clock: Clock,
        load: Load,
        free_port: Callable[[], int] = free_port,
    ) -> None:
        self.settings = settings
        self.identity = identity
        self.clock = clock
        self.boot_id = ids.new_id("boot")
        self._journal = Journal.open(settings.state_dir / "journal.jsonl", clock)
        self._equipment = Equipment(identity.runner_id, settings, self._journal, clock, load, free_port)
        self._controller = Controller(
            identity.controller,
            identity.token,
            clock=clock,
            retry=Retry(cap_s=settings.retry_cap_s),
            on_trouble=lambda line: log.warning("%s", line),
        )
        self._leaving = asyncio.Event()
        self._beat_now = asyncio.Event()
        self._attempts: dict[int, Attempt] = {}
        self._fatal = ""
        self._is_drained = False
        self._is_hasty = False

    async def run(self) -> int:
        """Work until told to end; return the exit status: 0, or 1 when the controller refuses this runner.

        The first SIGTERM or SIGINT: finish what runs, take nothing new. The second: give everything back now.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        try:
            await self._clean_up()
            await self._work()
        finally:
            await self._controller.aclose()
        if self._fatal:
            log.error("the controller refuses this runner: %s", self._fatal)
        return 1 if self._fatal else 0

    async def _clean_up(self) -> None:
        swept = await asyncio.to_thread(sweep, self._journal, self.identity.runner_id, self.clock)
        if swept.ended:
            log.warning("ended %d processes of an earlier life", len(swept.ended))
        if swept.left:
            log.error("processes of an earlier life can't be ended: %s", [record.pid for record in swept.left])

    async def _work(self) -> None:
        recovery = Recovery(self.settings, self._journal, self._controller, self.clock)
        errands = [asyncio.ensure_future(self._guarded(errand)) for errand in recovery.tasks()]
        beat = asyncio.ensure_future(self._guarded(self._beat()))
        slots = [asyncio.ensure_future(self._guarded(self._serve_slot(index))) for index in range(self.identity.slots)]
        log.info(
            "runner %s (%s) with %d slots asks %s for work",
            self.identity.name,
            self.identity.runner_id,
            self.identity.slots,
            self.identity.controller,
        )
        try:
            await asyncio.wait(slots)
            if errands:  # one that is just being answered is finished; the others stay in the spool
                await asyncio.wait(errands, timeout=LAST_CALLS_S)
        finally:
            for task in (*slots, beat, *errands):
                await end(task)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a part of the agent; a fault in it is logged, and ends this life in order."""
        try:
            await work
        except errors.BackslideError as error:
            self._refuse(error)
        except Exception:
            log.exception("a fault of the runner's own; it ends")
            self._fatal = self._fatal or "a fault of the runner's own"
            self._leave()

    async def _beat(self) -> None:
        interval_s = 30.0
        while True:
            self._beat_now.clear()
            beat = Heartbeat(
                agent_version=AGENT_VERSION,
                boot_id=self.boot_id,
                disk_free_bytes=self._free_bytes(),
                busy_slots=sorted(self._attempts),
                draining=self._leaving.is_set(),
            )
            try:
                answer = await self._controller.heartbeat(beat)
                interval_s = answer.interval_s
                self._set_drained(answer.directive is Directive.DRAIN)
            except errors.BackslideError as error:
                if _is_fatal(error):
                    raise
                log.error("heartbeat: %s", error.message)
            await _first(self._beat_now.wait(), interval_s)

    async def _serve_slot(self, index: int) -> None:
        while not self._leaving.is_set():
            if self._is_drained or self._is_full():
                await _first(self._leaving.wait(), 1.0 if self._is_drained else PAUSE_S)
                continue
            lease = await self._next_lease(index)
            if lease is not None:
                await self._make(index, lease)

    async def _make(self, index: int, lease: Lease) -> None:
        surroundings = Surroundings(
            self._equipment, self._controller, self.identity.controller, lambda: self._set_drained(True)
        )
        attempt = self._attempts[index] = Attempt(lease, surroundings)
        if self._is_hasty:
            attempt.leave()
        try:
            await self._run_attempt(attempt)
            while left := await attempt.leftovers():
                log.error("slot %d is not clean: processes %s live", index, [record.pid for record in left])
                if await _first(self._leaving.wait(), PAUSE_S):
                    break
        finally:
            del self._attempts[index]

    async def _run_attempt(self, attempt: Attempt) -> None:
        try:
            await attempt.run()
        except Exception:  # the attempt stays open in the journal, so that the next life reports it; others go on
            log.exception("%s: a fault of the runner's own", attempt.lease.attempt_id)
            await _first(self._leaving.wait(), PAUSE_S)

    async def _next_lease(self, index: int) -> Lease | None:
        """Ask until there is an answer, always under the same request id; None when there was no work."""
        request = LeaseRequest(
            request_id=ids.new_id("lrq"), boot_id=self.boot_id, slot=index, wait_s=self.settings.lease_wait_s
        )
        asking = asyncio.ensure_future(self._controller.lease(request))
        leaving = asyncio.ensure_future(self._leaving.wait())
        waits: set[asyncio.Future[Any]] = {asking, leaving}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
        except errors.LeaseLost:  # what this id stood for is over: ask with another
            await _first(self._leaving.wait(), 1.0)
            return None
        except errors.BackslideError as error:
            if _is_fatal(error):
                raise
            log.error("asking for work: %s; again in %.0f s", error.message, PAUSE_S)
            await _first(self._leaving.wait(), PAUSE_S)
            return None
        finally:
            await end(asking)
            await end(leaving)
        await self._give_back_unseen(request)
        return None

    async def _give_back_unseen(self, request: LeaseRequest) -> None:
        """A lease may be on its way to a call that was broken off: ask for it once more, and give it back."""
        try:
            lease = await self._controller.lease(request.model_copy(update={"wait_s": 0.0}), give_up_s=LAST_CALLS_S)
            if lease is not None:
                release = Release(fence=lease.fence, reason=ReleaseReason.DRAIN)
                await self._controller.release(lease, release, give_up_s=LAST_CALLS_S)
        except (Unreachable, errors.BackslideError) as error:
            log.info("leaving without a last word: %s", error)

    def _on_signal(self) -> None:
        if self._leaving.is_set():
            self._leave()
        else:
            running = f": finishing {len(self._attempts)} attempts; again to give them back" if self._attempts else ""
            log.info("told to end%s", running)
            self._leaving.set()
            self._beat_now.set()

    def _leave(self) -> None:
        """End now: every attempt gives its lease back, or leaves its result in the spool."""
        self._is_hasty = True
        self._leaving.set()
        for attempt in self._attempts.values():
            attempt.leave()

    def _refuse(self, error: errors.BackslideError) -> None:
        self._fatal = f"{error.code}: {error.message}"
        self._leave()

    def _set_drained(self, is_drained: bool) -> None:
        if is_drained != self._is_drained:
            log.info("the controller %s", "drains this runner" if is_drained else "gives work again")
        self._is_drained = is_drained

    def _free_bytes(self) -> int:
        return shutil.disk_usage(self.settings.state_dir).free

    def _is_full(self) -> bool:
        free_bytes = self._free_bytes()
        if free_bytes < self.settings.keep_free_bytes:
            log.error(
                "disk_full: %s has %.2f GB free, and BACKSLIDE_RUNNER_KEEP_FREE_BYTES wants %.2f GB: taking no work",
                self.settings.state_dir,
                free_bytes / 1e9,
                self.settings.keep_free_bytes / 1e9,
            )
            return True
        return False


def _is_fatal(error: errors.BackslideError) -> bool:
    """Return whether asking again can't help; a plain conflict means that a newer process is this runner now."""
    return isinstance(error, FATAL) or type(error) is errors.Conflict


async def _first(event: Coroutine[Any, Any, Any], limit_s: float) -> bool:
    """Wait for an event, at most ``limit_s``; return whether it came."""
    try:
        await asyncio.wait_for(event, limit_s)
    except TimeoutError:
        return False
    return True
