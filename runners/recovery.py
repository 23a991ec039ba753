"""What a new life does about the old ones: end their processes, hand in what is finished, report what is not."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from runners.controller import Controller
from runners.delivery import Parcel, deliver
from runners.journal import Journal, OpenAttempt
from runners.launch.sessions import TAG_RUNNER, ProcessRecord, find, kill_all
from runners.settings import RunnerSettings
from runners.spool import SpoolEntry, entries, remove_before
from service.contract import errors
from service.contract.clock import Clock
from service.contract.failures import Failure, FailureClass
from service.contract.lease import Lease, Release, ReleaseReason
from service.contract.upload import Failed, Result

SWEEP_LIMIT_S = 30.0

log = logging.getLogger("backslide.runner")


@dataclass(frozen=True)
class Swept:
    """Processes of earlier lives: those that were ended, and those that could not be."""

    ended: list[ProcessRecord]
    left: list[ProcessRecord]


def find_leftovers(journal: Journal, runner_id: str) -> list[ProcessRecord]:
    """Return the living processes of this runner's servers: by its tag, and by the sessions in the journal."""
    sessions = [session for attempt in journal.state.values() for session in attempt.sessions]
    return find(sessions, (TAG_RUNNER, runner_id))


def sweep(journal: Journal, runner_id: str, clock: Clock) -> Swept:
    """End every process that an earlier life left. Blocks up to half a minute; touches nothing that isn't ours."""
    found = find_leftovers(journal, runner_id)
    left = list(kill_all(lambda: find_leftovers(journal, runner_id), SWEEP_LIMIT_S, clock)) if found else []
    return Swept([record for record in found if record not in left], left)


@dataclass(frozen=True)
class Recovery:
    """The attempts that earlier lives left open."""

    settings: RunnerSettings
    journal: Journal
    controller: Controller
    clock: Clock

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        """Return one errand per attempt; each tries for as long as the controller can't be reached.

        Closed attempts whose files were kept for long enough are removed.
        """
        open_attempts = dict(self.journal.state)
        folders = {entry.attempt_id: entry for entry in entries(self.settings.attempts_dir)}
        errands = []
        for attempt_id, entry in folders.items():
            if attempt_id not in open_attempts and entry.result() is not None:
                open_attempts[attempt_id] = OpenAttempt(attempt_id, 0, "spooled")  # the journal's end was lost
        for attempt_id, attempt in open_attempts.items():
            entry = folders.get(attempt_id, SpoolEntry(self.settings.attempts_dir / attempt_id))
            lease = entry.lease()
            if lease is None:
                log.warning("%s was begun by an earlier life and left nothing", attempt_id)
                self._close(attempt_id, "nothing left")
            else:
                errands.append(self._finish(attempt, entry, lease))
        moment = self.clock.now() - timedelta(seconds=self.settings.keep_lost_s)
        remove_before(self.settings.attempts_dir, moment, open_attempts)
        return errands

    async def _finish(self, attempt: OpenAttempt, entry: SpoolEntry, lease: Lease) -> None:
        """Hand in the attempt's result; give it back if that was under way; or report that it was cut off."""
        result = entry.result()
        if result is None and attempt.release_reason is not None:
            await self._release(lease, ReleaseReason(attempt.release_reason), entry)
            return
        if result is None:
            result = _cut_off(lease, attempt.stage)
            with contextlib.suppress(OSError):
                entry.keep(result)
        parcel = Parcel(entry, lease, result, lambda line: log.info("%s %s", lease.attempt_id, line))
        log.info(
            "%s of an earlier life: result %s", lease.attempt_id, await deliver(self.controller, self.journal, parcel)
        )

    async def _release(self, lease: Lease, reason: ReleaseReason, entry: SpoolEntry) -> None:
        try:
            await self.controller.release(lease, Release(fence=lease.fence, reason=reason))
        except errors.BackslideError as error:
            log.info("%s of an earlier life: giving it back was refused: %s", lease.attempt_id, error.message)
        self._close(lease.attempt_id, "released")
        await asyncio.to_thread(entry.remove)

    def _close(self, attempt_id: str, how: str) -> None:
        with contextlib.suppress(OSError):
            self.journal.closed(attempt_id, how)


def _cut_off(lease: Lease, stage: str) -> Result:
    message = f"the runner was restarted in the middle of the attempt (its journal says: {stage})"
    failure = Failure(failure_class=FailureClass.RUNNER_LOST, step=stage[:40], message=message)
    return Result(fence=lease.fence, body=Failed(failure=failure))
