"""What this runner has begun, one JSON line per event, so that a life after a kill -9 can clean up and hand in.

The life of an attempt in it: leased → starting → spawned → members → spooled → uploading → closed, or releasing →
closed. Every event is on the disk when the method returns: ``starting`` before a process is started, ``uploading``
before an upload. A line that was torn by a crash is skipped. On opening, the file is rewritten with the open attempts.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runners.launch.sessions import ProcessRecord, Session
from service.contract.clock import Clock

RESERVE_BYTES = 2**18


@dataclass(frozen=True)
class OpenAttempt:
    """What the journal knows of an attempt that is not closed."""

    attempt_id: str
    slot: int
    stage: str
    """The newest event's kind."""
    sessions: tuple[Session, ...] = ()
    release_reason: str | None = None


@dataclass
class Journal:
    """An append-only file of events. ``state`` is what they add up to."""

    path: Path
    clock: Clock
    state: dict[str, OpenAttempt] = field(default_factory=dict)
    skipped_lines: int = 0

    @classmethod
    def open(cls, path: Path, clock: Clock) -> "Journal":
        """Read the journal, and rewrite it compacted; a missing one is empty. Only one process may have it open."""
        journal = cls(path, clock)
        journal._read()
        journal._compact()
        return journal

    @classmethod
    def peek(cls, path: Path, clock: Clock) -> "Journal":
        """Read the journal and leave the file as it is (for a look at a running runner's)."""
        journal = cls(path, clock)
        journal._read()
        return journal

    def leased(self, attempt_id: str, slot: int) -> None:
        self._append("leased", attempt_id, {"slot": slot})

    def starting(self, attempt_id: str) -> None:
        """Is on the disk when this returns: call it before a process is started."""
        self._append("starting", attempt_id, {})

    def spawned(self, attempt_id: str, leader: ProcessRecord, machine_boot_id: str) -> None:
        data = {"pid": leader.pid, "start_ticks": leader.start_ticks, "machine_boot_id": machine_boot_id}
        self._append("spawned", attempt_id, data)

    def members(self, attempt_id: str, members: tuple[ProcessRecord, ...]) -> None:
        """Note processes of the newest session, to know it by when its leader is gone."""
        self._append("members", attempt_id, {"members": [[one.pid, one.start_ticks] for one in members]})

    def spooled(self, attempt_id: str) -> None:
        self._append("spooled", attempt_id, {})

    def uploading(self, attempt_id: str) -> None:
        self._append("uploading", attempt_id, {})

    def releasing(self, attempt_id: str, reason: str) -> None:
        self._append("releasing", attempt_id, {"reason": reason})

    def closed(self, attempt_id: str, how: str) -> None:
        self._append("closed", attempt_id, {"how": how})

    def _append(self, kind: str, attempt_id: str, data: Mapping[str, Any]) -> None:
        event = {"kind": kind, "attempt_id": attempt_id, "at": self.clock.now().isoformat(), **data}
        line = json.dumps(event, separators=(",", ":")).encode() + b"\n"
        try:
            self._write(line)
        except OSError:
            # The disk is full. What must be written down to clean up later goes into room that was kept for it.
            self._reserve.unlink(missing_ok=True)
            self._write(b"\n" + line)
        self._apply(event)

    def _write(self, data: bytes) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.write(descriptor, data) != len(data):
                raise OSError("a line of the journal was written in part")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @property
    def _reserve(self) -> Path:
        return self.path.with_suffix(".reserve")

    def _read(self) -> None:
        content = self.path.read_bytes() if self.path.exists() else b""
        for line in content.split(b"\n"):
            if not line.strip():
                continue
            try:
                self._apply(json.loads(line))
            except (ValueError, KeyError, TypeError, IndexError):
                self.skipped_lines += 1

    def _apply(self, event: Mapping[str, Any]) -> None:
        kind, attempt_id = event["kind"], event["attempt_id"]
        if kind == "closed":
            self.state.pop(attempt_id, None)
            return
        known = self.state.get(attempt_id) or OpenAttempt(attempt_id, int(event.get("slot", 0)), kind)
        known = replace(known, stage=kind)
        if kind == "spawned":
            leader = ProcessRecord(int(event["pid"]), int(event["start_ticks"]))
            known = replace(known, sessions=(*known.sessions, Session(leader, event["machine_boot_id"])))
        elif kind == "members":
            members = tuple(ProcessRecord(int(pid), int(ticks)) for pid, ticks in event["members"])
            *earlier, last = known.sessions
            known = replace(known, sessions=(*earlier, replace(last, members=members)))
        elif kind == "releasing":
            known = replace(known, release_reason=event["reason"])
        self.state[attempt_id] = known

    def _compact(self) -> None:
        lines = [line for attempt in self.state.values() for line in _events(attempt)]
        draft = self.path.with_suffix(".draft")
        with draft.open("wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path)
        if not self._reserve.exists():
            self._reserve.write_bytes(bytes(RESERVE_BYTES))
        sync_directory(self.path.parent)


def _events(attempt: OpenAttempt) -> list[dict[str, Any]]:
    """Return events that add up to the attempt."""
    base = {"attempt_id": attempt.attempt_id}
    events: list[dict[str, Any]] = [{**base, "kind": "leased", "slot": attempt.slot}]
    for session in attempt.sessions:
        leader = {"pid": session.leader.pid, "start_ticks": session.leader.start_ticks}
        events.append({**base, "kind": "spawned", **leader, "machine_boot_id": session.machine_boot_id})
        if session.members:
            members = [[one.pid, one.start_ticks] for one in session.members]
            events.append({**base, "kind": "members", "members": members})
    if attempt.release_reason is not None:
        events.append({**base, "kind": "releasing", "reason": attempt.release_reason})
    if attempt.stage not in {event["kind"] for event in events}:
        events.append({**base, "kind": attempt.stage})
    return events


def sync_directory(path: Path) -> None:
    """Make renames in a directory survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
