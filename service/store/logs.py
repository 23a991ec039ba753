"""Attempt logs: one file each, of bounded size, whose head and tail are kept."""

import errno
import os
import re
from pathlib import Path

from service.contract.errors import DiskFull, InvalidInput

_ATTEMPT = re.compile(r"att_[0-9a-f]{16}")


class AttemptLogs:
    """A directory of logs. Of a log longer than ``max_bytes`` the first half of that and the last half are kept.

    The size of a log is kept by the caller, in the attempt's row: what a file holds beyond it was never acknowledged.
    The tail is a ring: byte ``n`` of the log lies at ``head + (n - head) % tail``, so a file never outgrows its cap.
    """

    def __init__(self, root: Path, max_bytes: int) -> None:
        self.root = root
        self.head_bytes = max_bytes // 2
        self.tail_bytes = max_bytes - self.head_bytes

    def write(self, attempt_id: str, offset: int, data: bytes) -> None:
        """Write ``data`` at ``offset`` of the log. Raises DiskFull when there is no room; nothing before is lost."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._path(attempt_id), os.O_WRONLY | os.O_CREAT, 0o640)
            try:
                for position, piece in self._pieces(offset, data):
                    self._write_all(handle, position, piece)
            finally:
                os.close(handle)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFull(f"No room under {self.root}; free {len(data)} bytes and send again.") from error
            raise

    def read(self, attempt_id: str, size_bytes: int) -> bytes:
        """Return the log of ``size_bytes``; where its middle was dropped, a line says how many bytes are missing."""
        try:
            stored = self._path(attempt_id).read_bytes()
        except FileNotFoundError:
            return b""
        limit = self.head_bytes + self.tail_bytes
        if size_bytes <= limit:
            return stored[:size_bytes]
        start = self.head_bytes + (size_bytes - self.head_bytes) % self.tail_bytes
        note = f"\n[{size_bytes - limit} bytes left out]\n".encode()
        return stored[: self.head_bytes] + note + stored[start:limit] + stored[self.head_bytes : start]

    def _pieces(self, offset: int, data: bytes) -> list[tuple[int, bytes]]:
        """Where in the file the parts of a chunk go."""
        in_head = max(0, min(len(data), self.head_bytes - offset))
        pieces = [(offset, data[:in_head])] if in_head else []
        rest, at = data[in_head:], offset + in_head
        if len(rest) > self.tail_bytes:
            at += len(rest) - self.tail_bytes
            rest = rest[-self.tail_bytes :]
        while rest:
            place = (at - self.head_bytes) % self.tail_bytes
            room = self.tail_bytes - place
            pieces.append((self.head_bytes + place, rest[:room]))
            at, rest = at + len(rest[:room]), rest[room:]
        return pieces

    @staticmethod
    def _write_all(handle: int, position: int, data: bytes) -> None:
        while data:
            written = os.pwrite(handle, data, position)
            position, data = position + written, data[written:]

    def _path(self, attempt_id: str) -> Path:
        if not _ATTEMPT.fullmatch(attempt_id):
            raise InvalidInput(f"{attempt_id!r} is no id of an attempt.")
        return self.root / f"{attempt_id}.log"
