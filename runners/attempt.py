"""One attempt: hold the lease, make the launch, hand in what came of it, leave nothing behind."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from runners.controller import Controller, RenewalClient, Unreachable
from runners.delivery import Parcel, deliver
from runners.launch.sessions import TAG_ATTEMPT, ProcessRecord, find
from runners.lease import Activity, LeaseSignal, Renewer
from runners.load.plan import LoadProgress
from runners.logstream import LogStream
from runners.measurement import Equipment, Measurement
from runners.spool import SpoolEntry
from runners.steps import Step, StepFailed, StepRunner, Stopped, StopReason, end, os_failure
from service.contract import errors
from service.contract.failures import Failure, FailureClass
from service.contract.lease import AttemptState, Lease, Release, ReleaseReason
from service.contract.upload import ArtifactRef, Completed, Failed, Result

LAST_CALLS_S = 10.0
"""How long a runner that is told to end now still tries to reach the controller."""

log = logging.getLogger("backslide.runner")


@dataclass(frozen=True)
class Surroundings:
    """What an attempt needs besides its lease."""

    equipment: Equipment
    controller: Controller
    controller_url: str
    on_drain: Callable[[], None]


class Attempt:
    """One lease from its first renewal to the controller's acknowledgement. ``run`` is called once."""

    def __init__(self, lease: Lease, surroundings: Surroundings) -> None:
        equipment = surroundings.equipment
        self.lease = lease
        self._surroundings = surroundings
        self._equipment = equipment
        self._controller = surroundings.controller
        self._journal = equipment.journal
        self._entry = SpoolEntry(equipment.settings.attempts_dir / lease.attempt_id)
        self._log = LogStream(lease, self._entry.folder, surroundings.controller, equipment.clock)
        self._loop = asyncio.get_running_loop()
        self._stopped: asyncio.Future[StopReason] = self._loop.create_future()
        self._held = asyncio.Event()
        self._leaving = asyncio.Event()
        self._activity = Activity()
        self._renewer = Renewer(
            lease, RenewalClient(surroundings.controller_url, lease), equipment.clock, self._signalled
        )
        self._steps = StepRunner(lease, equipment.settings, equipment.clock, self._stopped, self._began)
        self._measurement = Measurement(lease, equipment, self._entry.folder, self._steps, self._detail, self._progress)

    def leave(self) -> None:
        """End as soon as possible: give the lease back, or leave the finished result in the spool."""
        self._leaving.set()
        self._stop(StopReason.SHUTDOWN)

    async def leftovers(self) -> list[ProcessRecord]:
        """Return the processes of this attempt that live; normally none after ``run``."""
        sessions = [server.session for server in self._measurement.servers]
        return await asyncio.to_thread(find, sessions, (TAG_ATTEMPT, self.lease.attempt_id))

    async def run(self) -> None:
        """Make the attempt. Never raises but for cancellation; the server has ended and renewals have stopped."""
        try:
            SpoolEntry.create(self._equipment.settings.attempts_dir, self.lease)
            self._journal.leased(self.lease.attempt_id, self.lease.slot)
        except OSError as error:
            self._held.set()
            failure = Failure(failure_class=os_failure(error), step="lease", message=f"{error}")
            await self._hand_in(Failed(failure=failure), [])
            return
        self._renewer.start()
        pump = asyncio.ensure_future(self._log.pump())
        try:
            await self._hold_and_make()
        finally:
            await end(pump)
            await asyncio.to_thread(self._renewer.stop)

    async def _hold_and_make(self) -> None:
        """Start nothing before the first renewal has succeeded."""
        held = asyncio.ensure_future(self._held.wait())
        waits: set[asyncio.Future[Any]] = {held, self._stopped}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        await end(held)
        if self._stopped.done():
            await self._give_up(self._stopped.result(), [])
            return
        build, lease = self.lease.build, self.lease
        self._log.say(f"{build.name} ({build.kind}) in slot {lease.slot}, attempt {lease.number} of {lease.job_id}")
        measurement = self._measurement
        try:
            body: Completed | Failed = Completed(launch=await measurement.make())
            artifacts = await measurement.artifacts()
        except Stopped as stopped:
            await self._give_up(stopped.reason, await measurement.artifacts())
            return
        except StepFailed as failed:
            body = self._failed(failed.failure_class, failed.step, failed.message)
            artifacts = await measurement.artifacts()
        except OSError as error:
            body, artifacts = self._failed(os_failure(error), "report", str(error)), []
        await self._hand_in(body, artifacts)

    async def _give_up(self, reason: StopReason, artifacts: list[ArtifactRef]) -> None:
        """End an attempt that is not to be finished."""
        self._log.say(f"given up: {reason}")
        if reason is StopReason.LOST:
            self._log.say(f"the lease is gone {self._renewer.refusal}; files stay in {self._entry.folder}")
            self._journal.closed(self.lease.attempt_id, reason)
        elif reason is StopReason.EXPIRED:
            message = f"no renewal reached the controller for {self.lease.ttl_s:.0f} s"
            await self._hand_in(self._failed(FailureClass.RUNNER_LOST, self._activity.step, message), artifacts)
        else:
            await self._release(ReleaseReason(reason.value))

    async def _release(self, reason: ReleaseReason) -> None:
        """Give the attempt back; if the controller can't be reached, the next life does it."""
        await self._log.finish()
        await asyncio.to_thread(self._renewer.stop)
        self._journal.releasing(self.lease.attempt_id, reason)
        try:
            release = Release(fence=self.lease.fence, reason=reason)
            await self._controller.release(self.lease, release, give_up_s=LAST_CALLS_S)
        except Unreachable as trouble:
            self._log.say(f"could not be given back: {trouble.message}")
            return
        except errors.BackslideError as error:
            self._log.say(f"giving it back was refused: {error.message}")
        self._journal.closed(self.lease.attempt_id, "released")
        self._entry.remove()

    async def _hand_in(self, body: Completed | Failed, artifacts: list[ArtifactRef]) -> None:
        """Spool the result and deliver it; when told to leave, the spool keeps it for the next life."""
        if isinstance(body, Failed):
            self._log.say(f"failed in {body.failure.step}: {body.failure.failure_class}: {body.failure.message}")
        result = Result(fence=self.lease.fence, body=body, artifacts=artifacts)
        try:
            self._entry.keep(result)
            self._journal.spooled(self.lease.attempt_id)
        except OSError as error:
            log.error("%s the result can't be spooled (%s): handing it in from memory", self.lease.attempt_id, error)
        self._tell(Activity(AttemptState.UPLOADING, "upload"))  # from here on a death of the runner loses nothing
        self._log.is_quiet = False
        parcel = Parcel(self._entry, self.lease, result, self._log.say, self._before_result)
        delivery = asyncio.ensure_future(deliver(self._controller, self._journal, parcel))
        leaving = asyncio.ensure_future(self._leaving.wait())
        try:
            await asyncio.wait({delivery, leaving}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({delivery}, timeout=LAST_CALLS_S)
            if delivery.done():
                log.info("%s result: %s", self.lease.attempt_id, delivery.result())
            else:
                log.warning("%s the result stays in the spool for the next start", self.lease.attempt_id)
        finally:
            await end(leaving)
            await end(delivery)

    async def _before_result(self) -> None:
        await self._log.finish()
        await asyncio.to_thread(self._renewer.stop)

    def _failed(self, failure_class: FailureClass, step: str, message: str) -> Failed:
        failure = Failure(failure_class=failure_class, step=step[:40], message=message[:4000])
        return Failed(failure=failure, steps=self._steps.timings)

    def _signalled(self, signal: LeaseSignal) -> None:
        """Called from the renewal's thread."""
        self._loop.call_soon_threadsafe(self._on_signal, signal)

    def _on_signal(self, signal: LeaseSignal) -> None:
        if signal is LeaseSignal.HELD:
            self._held.set()
        elif signal is LeaseSignal.DRAIN:
            self._surroundings.on_drain()
        elif signal is LeaseSignal.CANCEL:
            self._stop(StopReason.CANCELLED)
        elif signal is LeaseSignal.EXPIRED:
            self._stop(StopReason.EXPIRED)
        else:
            self._stop(StopReason.LOST)

    def _stop(self, reason: StopReason) -> None:
        if not self._stopped.done():
            self._stopped.set_result(reason)

    def _began(self, step: Step) -> None:
        self._log.say(f"{step.name} …")
        self._tell(Activity(self._later(step.state), step.name))

    def _detail(self, text: str) -> None:
        """May be called from any thread."""
        self._loop.call_soon_threadsafe(self._on_detail, text)

    def _on_detail(self, text: str) -> None:
        if text != self._activity.detail:
            self._log.say(f"{self._activity.step}: {text}")
            self._tell(Activity(self._activity.state, self._activity.step, text))

    def _progress(self, progress: LoadProgress) -> None:
        is_measuring = progress.phase == "measure"
        self._log.is_quiet = True
        name = f"repetition {progress.repetition} of {progress.of}" if is_measuring else progress.phase
        detail = f"{name}: {progress.requests_done} of {progress.requests} requests"
        state = self._later(AttemptState.MEASURING if is_measuring else AttemptState.WARMING)
        done = progress.requests_done / progress.requests if progress.requests else None
        self._tell(Activity(state, progress.phase, detail, done))

    def _later(self, state: AttemptState) -> AttemptState:
        """Return the state, or the one that was reached already: an attempt never goes back."""
        order = list(AttemptState)
        return max(state, self._activity.state, key=order.index)

    def _tell(self, activity: Activity) -> None:
        self._activity = activity
        self._renewer.tell(activity)
