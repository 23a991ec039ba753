"""Files by content: raw logs and artifacts under their SHA-256, written once, never edited."""

import errno
import hashlib
import os
import re
import tempfile
from pathlib import Path

from service.contract.errors import DiskFull, InvalidInput, NotFound

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_HASH = re.compile(r"[0-9a-f]{64}")


class Blobs:
    """A directory of immutable files. ``put`` is atomic and durable; the same content again changes nothing."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, sha256: str, data: bytes) -> None:
        """Store ``data``. Raises InvalidInput when its hash is another, DiskFull when there is no room."""
        found = hashlib.sha256(data).hexdigest()
        if found != sha256:
            raise InvalidInput(
                f"The bytes have SHA-256 {found}, not {sha256}: they were damaged on the way; send again."
            )
        path = self.path(sha256)
        if path.exists():
            return
        try:
            self._write(path, data)
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise DiskFull(f"No room under {self.root}; free {len(data)} bytes and send again.") from error
            raise

    def get(self, sha256: str) -> bytes:
        """Return the bytes; NotFound when they were never stored."""
        try:
            return self.path(sha256).read_bytes()
        except FileNotFoundError:
            raise NotFound(f"No file with SHA-256 {sha256} is stored.") from None

    def has(self, sha256: str) -> bool:
        return self.path(sha256).exists()

    def path(self, sha256: str) -> Path:
        """Where the file is, or would be."""
        if not _HASH.fullmatch(sha256):
            raise InvalidInput("A SHA-256 has 64 lower-case hex digits.")
        return self.root / sha256[:2] / sha256

    def _write(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".part-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
