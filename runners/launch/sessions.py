"""Which processes are ours, beyond doubt, and how all of them are ended.

Every server is started as the leader of a session of its own, with tags in its environment. vLLM's engine core and
workers stay in that session, but overwrite the beginning of their environment with their title, and outlive their API
server; so a process is ours when it carries our tag, or when it belongs to a session of which at least one member is
proven to be the very process that was recorded (same boot of the machine, same pid, same start). Nothing else is ever
touched. Linux only: /proc and pidfds.
"""

import contextlib
import os
import select
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from service.contract.clock import Clock

TAG_ATTEMPT = "BACKSLIDE_ATTEMPT"
TAG_RUNNER = "BACKSLIDE_RUNNER"
PROC = Path("/proc")
SCAN_S = 0.5


@dataclass(frozen=True)
class ProcessRecord:
    """One process, beyond doubt within one boot of the machine: a pid alone can be another process's tomorrow."""

    pid: int
    start_ticks: int
    """Clock ticks from the machine's boot to the process's start (field 22 of /proc/PID/stat)."""


@dataclass(frozen=True)
class Session:
    """The session of a server: its leader, the machine's boot in which it ran, and further members that were seen."""

    leader: ProcessRecord
    machine_boot_id: str
    members: tuple[ProcessRecord, ...] = ()


@dataclass(frozen=True)
class Seen:
    """A living process of this user, as a scan saw it."""

    record: ProcessRecord
    session_id: int


def machine_boot_id() -> str:
    """Return what is different after every boot of the machine."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def look_up(pid: int) -> Seen | None:
    """Return a process that lives and belongs to this user, or None (zombies don't live)."""
    try:
        if (PROC / str(pid)).stat().st_uid != os.getuid():
            return None
        stat = (PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # The name, in parentheses, may hold anything; the fields after the last parenthesis are numbers from field 3 on.
    fields = stat[stat.rindex(b")") + 2 :].split()
    if fields[0] in (b"Z", b"X"):
        return None
    return Seen(ProcessRecord(pid, int(fields[19])), int(fields[3]))


def scan() -> list[Seen]:
    """Return every living process of this user but this one."""
    pids = (int(name) for name in os.listdir(PROC) if name.isdecimal())
    return [seen for pid in pids if pid != os.getpid() and (seen := look_up(pid)) is not None]


def find(sessions: Iterable[Session], tag: tuple[str, str] | None) -> list[ProcessRecord]:
    """Return the living processes of recorded sessions, and those whose environment holds the tag ``(name, value)``."""
    everything = scan()
    tagged = {seen.record for seen in everything if tag is not None and _has_tag(seen.record.pid, tag)}
    ours = set(tagged)
    boot_id = machine_boot_id()
    for session in sessions:
        if session.machine_boot_id != boot_id:
            continue  # every process of that boot is gone, whatever has its number now
        members = {seen.record for seen in everything if seen.session_id == session.leader.pid}
        if members & ({session.leader, *session.members} | tagged):
            ours |= members
    return sorted(ours, key=lambda record: record.pid)


def members_of(leader: ProcessRecord) -> tuple[ProcessRecord, ...]:
    """Return the living processes of the session that a living leader leads; empty once it is gone."""
    seen = look_up(leader.pid)
    if seen is None or seen.record != leader:
        return ()
    return tuple(one.record for one in scan() if one.session_id == leader.pid)


def send(record: ProcessRecord, number: signal.Signals) -> None:
    """Send a signal to exactly this process; nothing happens when it is gone, even if its pid was given away."""
    descriptor = _open(record)
    if descriptor is None:
        return
    try:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)


def kill_all(search: Callable[[], Sequence[ProcessRecord]], limit_s: float, clock: Clock) -> Sequence[ProcessRecord]:
    """SIGKILL what ``search`` finds until it finds nothing; return what is left after ``limit_s``: normally nothing."""
    end_s = clock.monotonic_s() + limit_s
    while found := search():
        for record in found:
            send(record, signal.SIGKILL)
        _await_ends(found, SCAN_S)
        if clock.monotonic_s() >= end_s:
            return search()
    return []


def _has_tag(pid: int, tag: tuple[str, str]) -> bool:
    try:
        environ = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return "=".join(tag).encode() in environ.split(b"\0")


def _open(record: ProcessRecord) -> int | None:
    """Return a pidfd of exactly this process, or None when it is gone."""
    try:
        descriptor = os.pidfd_open(record.pid)
    except OSError:
        return None
    seen = look_up(record.pid)  # looked up after the descriptor pinned the process
    if seen is not None and seen.record == record:
        return descriptor
    os.close(descriptor)
    return None


def _await_ends(records: Sequence[ProcessRecord], limit_s: float) -> None:
    """Wait until one of them ends, at most ``limit_s``."""
    poll = select.poll()
    descriptors = [descriptor for record in records if (descriptor := _open(record)) is not None]
    try:
        for descriptor in descriptors:
            poll.register(descriptor, select.POLLIN)
        if descriptors:
            poll.poll(limit_s * 1000)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
