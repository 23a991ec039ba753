"""The attempt's log for people who follow it live: the agent's own lines and the server's log, in one stream.

It goes to the controller beside the work and never holds it up: whatever goes wrong is tried again at the next turn.
"""

import asyncio
import contextlib
import logging
from pathlib import Path

from runners.controller import Controller, Unreachable
from service.contract import errors
from service.contract.clock import Clock
from service.contract.lease import Lease

CHUNK_BYTES = 2**18
CAP_BYTES = 8 * 2**20
QUIET_S = 5.0
LIVELY_S = 1.0
LAST_S = 5.0
CUT = b"[the stream is cut here; the server's whole log is the artifact server.log]\n"

log = logging.getLogger("backslide.runner")


class LogStream:
    """Collects the lines in ``attempt.log`` of the attempt's folder and sends what the controller has not got yet."""

    def __init__(self, lease: Lease, folder: Path, controller: Controller, clock: Clock) -> None:
        self._lease = lease
        self._path = folder / "attempt.log"
        self._server_log = folder / "server.log"
        self._controller = controller
        self._clock = clock
        self._server_offset = 0
        self._sent = 0
        self._cut = False
        self._refused = False
        self.is_quiet = False
        """While measuring, the stream looks less often."""

    def say(self, line: str) -> None:
        """Add a line of the agent's own; also goes to the agent's log. A full disk loses the line, nothing else."""
        log.info("%s %s", self._lease.attempt_id, line)
        moment = self._clock.now().isoformat(timespec="milliseconds")
        with contextlib.suppress(OSError):
            self._add(f"{moment} {line}\n".encode())

    async def pump(self) -> None:
        """Send what is new, again and again, until cancelled."""
        while True:
            await self._turn()
            await asyncio.sleep(QUIET_S if self.is_quiet else LIVELY_S)

    async def finish(self) -> None:
        """Send what is left, for at most 5 s."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_S):
                await self._turn()

    async def _turn(self) -> None:
        try:
            self._take_server_log()
            while not self._refused and await self._send():
                pass
        except errors.OffsetMismatch as mismatch:
            self._sent = int(mismatch.details.get("size_bytes", self._sent))
        except errors.BackslideError as error:
            self._refused = True
            log.warning("%s the log is not taken any more: %s", self._lease.attempt_id, error.message)
        except (Unreachable, OSError) as error:
            log.debug("%s the log waits: %s", self._lease.attempt_id, error)

    async def _send(self) -> bool:
        """Send one chunk; return whether there was one."""
        if not self._path.exists():
            return False
        with self._path.open("rb") as file:
            file.seek(self._sent)
            data = file.read(CHUNK_BYTES)
        if not data:
            return False
        self._sent = (await self._controller.append_log(self._lease, self._sent, data)).size_bytes
        return True

    def _take_server_log(self) -> None:
        if not self._server_log.exists():
            return
        with self._server_log.open("rb") as file:
            file.seek(self._server_offset)
            data = file.read(2**20)
        whole = data[: data.rfind(b"\n") + 1]
        self._server_offset += len(whole)
        if whole:
            self._add(b"".join(b"server | " + line for line in whole.splitlines(keepends=True)))

    def _add(self, data: bytes) -> None:
        if self._cut:
            return
        with self._path.open("ab") as file:
            if file.tell() + len(data) > CAP_BYTES:
                self._cut = True
                data = CUT
            file.write(data)
