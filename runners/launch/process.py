"""A server as a process tree of its own: started with a clean environment, ended to the last member."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runners.launch.launchable import LaunchError
from runners.launch.sessions import (
    TAG_ATTEMPT,
    ProcessRecord,
    Session,
    find,
    kill_all,
    look_up,
    machine_boot_id,
    members_of,
    send,
)
from service.contract.clock import Clock
from service.contract.failures import FailureClass

INHERITED = ("PATH", "HOME", "LANG", "TMPDIR", "USER")
KILL_LIMIT_S = 30.0
TAIL_BYTES = 2**16


def free_port() -> int:
    """Return a port of 127.0.0.1 that is free now. Somebody else may take it before the server does."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def minimal_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the few variables that every program needs; what else the runner has is not the server's business."""
    return {name: environ[name] for name in INHERITED if name in environ}


@dataclass
class ServerProcess:
    """A running server. ``session`` tells its processes from all others."""

    process: asyncio.subprocess.Process
    session: Session
    attempt_id: str
    command: tuple[str, ...]
    log: Path
    clock: Clock

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        env: Mapping[str, str],
        *,
        folder: Path,
        log: Path,
        attempt_id: str,
        clock: Clock,
    ) -> "ServerProcess":
        """Start ``command`` in a session of its own, both outputs into ``log``. ``env`` is its whole environment.

        Raises LaunchError spec_invalid when there is no such program.
        """
        with log.open("ab") as output:
            try:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    env=dict(env),
                    cwd=folder,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=asyncio.subprocess.STDOUT,
                    start_new_session=True,
                )
            except (FileNotFoundError, PermissionError) as error:
                raise LaunchError(FailureClass.SPEC_INVALID, f"{command[0]} can't be started: {error}") from error
        seen = look_up(process.pid)
        # One that is gone already has no start; no process can have this record then.
        record = seen.record if seen is not None else ProcessRecord(process.pid, -1)
        return cls(process, Session(record, machine_boot_id()), attempt_id, tuple(command), log, clock)

    @property
    def pid(self) -> int:
        return self.process.pid

    async def ended(self) -> int:
        """Wait for the leader's end; return its exit status (negative: the signal that ended it)."""
        return await self.process.wait()

    def tail(self, lines: int = 12) -> str:
        """Return the last lines of its log."""
        return log_tail(self.log, lines)

    async def look_around(self) -> bool:
        """Add the processes that its session has now to ``session``; return whether there were new ones.

        Needed while the leader lives: afterwards the others are known only by what was recorded of them.
        """
        seen = await asyncio.to_thread(members_of, self.session.leader)
        new = set(seen) - set(self.session.members)
        members = tuple(sorted(new | set(self.session.members), key=lambda record: record.pid))
        self.session = replace(self.session, members=members)
        return bool(new)

    async def stop(self, grace_s: float) -> None:
        """End the whole tree: SIGINT to the leader, after ``grace_s`` SIGKILL to every process that is left.

        Raises LaunchError internal when some process is still there after all that.
        """
        if self.process.returncode is None:
            await self.look_around()
            send(self.session.leader, signal.SIGINT)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), grace_s)
        tag = (TAG_ATTEMPT, self.attempt_id)
        left = await asyncio.to_thread(kill_all, lambda: find([self.session], tag), KILL_LIMIT_S, self.clock)
        if left:
            pids = ", ".join(str(record.pid) for record in left)
            raise LaunchError(FailureClass.INTERNAL, f"processes {pids} of the server could not be ended")
        await self.process.wait()


def log_tail(log: Path, lines: int) -> str:
    """Return the last lines of a log file, whatever its encoding; empty when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])
