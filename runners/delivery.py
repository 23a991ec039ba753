"""Handing in a result: the files first, the result last. Every part may be repeated after a crash."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from runners.controller import Controller
from runners.journal import Journal
from runners.spool import SpoolEntry
from service.contract import errors
from service.contract.failures import Failure, FailureClass
from service.contract.lease import Lease
from service.contract.upload import Completed, Failed, Result, ResultAnswer

FAULT_PAUSES_S = (1.0, 5.0, 30.0)


class Delivered(StrEnum):
    """How it ended."""

    ACCEPTED = "accepted"
    OVERTAKEN = "overtaken"
    """A newer attempt exists: kept by the controller for audit, not used."""
    REFUSED = "refused"
    """The controller wants nothing of this attempt; the files stay for a while."""
    KEPT = "kept"
    """The controller failed at it; the next life of the runner tries again."""


@dataclass(frozen=True)
class Parcel:
    """A spooled result on its way. ``on_line`` gets lines for people.

    ``before_result`` is awaited when the files are there and the result is not: renewals must have stopped by then.
    """

    entry: SpoolEntry
    lease: Lease
    result: Result
    on_line: Callable[[str], None]
    before_result: Callable[[], Awaitable[None]] | None = None


async def deliver(controller: Controller, journal: Journal, parcel: Parcel) -> Delivered:
    """Hand in the result of an attempt and forget it; tries as long as the controller can't be reached.

    A result whose parts the controller does not take becomes a failure ``upload_failed``. One at which the controller
    itself fails several times stays in the spool.
    """
    attempt_id = parcel.lease.attempt_id
    with contextlib.suppress(OSError):  # a full disk must not keep a result from leaving it
        journal.uploading(attempt_id)
    for pause_s in (*FAULT_PAUSES_S, None):
        try:
            answer = await _hand_in(controller, parcel)
        except errors.BackslideError as error:
            if type(error) is not errors.BackslideError:
                return _refused(journal, parcel, error)
            parcel.on_line(f"the controller fails at the result: {_text(error)}")
            if pause_s is None:
                break
            await asyncio.sleep(pause_s)
            continue
        delivered = Delivered.ACCEPTED if answer.accepted else Delivered.OVERTAKEN
        _close(journal, attempt_id, delivered)
        parcel.entry.remove()
        return delivered
    return Delivered.KEPT


async def _hand_in(controller: Controller, parcel: Parcel) -> ResultAnswer:
    """Send files and result once; what can't be taken is replaced by a failure without files."""
    result = parcel.result
    try:
        await _send_artifacts(controller, parcel)
        if parcel.before_result is not None:
            await parcel.before_result()
        return await controller.put_result(parcel.lease, result)
    except (errors.InvalidInput, errors.TooLarge, errors.ArtifactMissing, OSError) as error:
        if not result.artifacts and isinstance(result.body, Failed):
            raise errors.Conflict(f"not even the failure is taken: {_text(error)}") from error
        parcel.on_line(f"the result can't be handed in: {_text(error)}")
        if parcel.before_result is not None:
            await parcel.before_result()
        return await controller.put_result(parcel.lease, _instead_of(result, error))


def _refused(journal: Journal, parcel: Parcel, error: errors.BackslideError) -> Delivered:
    parcel.on_line(f"the result is refused ({_text(error)}); its files stay in {parcel.entry.folder}")
    parcel.entry.set_aside()
    _close(journal, parcel.lease.attempt_id, Delivered.REFUSED)
    return Delivered.REFUSED


def _close(journal: Journal, attempt_id: str, how: str) -> None:
    with contextlib.suppress(OSError):  # if it can't be noted, the next life hands the same in again: a replay
        journal.closed(attempt_id, how)


async def _send_artifacts(controller: Controller, parcel: Parcel) -> None:
    for ref in parcel.result.artifacts:
        path = parcel.entry.folder / ref.name
        if path.stat().st_size != ref.size_bytes:
            raise OSError(f"{path} has {path.stat().st_size} bytes, not {ref.size_bytes}: the disk lost some")
        await controller.put_artifact(parcel.lease, ref, path)


def _instead_of(result: Result, error: Exception) -> Result:
    """Return the failure that stands for a result that could not be handed in; an earlier failure keeps its class."""
    if isinstance(result.body, Completed):
        failure = Failure(failure_class=FailureClass.UPLOAD_FAILED, step="upload", message=_text(error)[:4000])
        return Result(fence=result.fence, body=Failed(failure=failure, steps=result.body.launch.steps))
    return Result(fence=result.fence, body=result.body)


def _text(error: Exception) -> str:
    return f"{error.code}: {error.message}" if isinstance(error, errors.BackslideError) else str(error)
