"""What an attempt left on the disk until the controller has acknowledged it: a folder per attempt.

``lease.json`` (with the attempt's token, mode 0600), the files that it made, and last ``result.json``. A folder with a
result is waiting to be handed in; one without belongs to an attempt that runs, or that an earlier life did not finish.
"""

import hashlib
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from runners.journal import sync_directory
from service.contract.lease import Lease
from service.contract.upload import ArtifactRef, Result


@dataclass(frozen=True)
class SpoolEntry:
    """The folder of one attempt."""

    folder: Path

    @classmethod
    def create(cls, attempts_dir: Path, lease: Lease) -> "SpoolEntry":
        """Make the folder and write the lease; an earlier folder of the same attempt is used again."""
        entry = cls(attempts_dir / lease.attempt_id)
        entry.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(entry.folder / "lease.json", lease.model_dump_json().encode())
        return entry

    @property
    def attempt_id(self) -> str:
        return self.folder.name

    @property
    def size_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    def lease(self) -> Lease | None:
        """Return the lease, or None when its file is missing or damaged."""
        try:
            return Lease.model_validate_json((self.folder / "lease.json").read_bytes())
        except (OSError, ValueError):
            return None

    def result(self) -> Result | None:
        """Return the result, or None while there is none (a damaged one counts as none)."""
        try:
            return Result.model_validate_json((self.folder / "result.json").read_bytes())
        except (OSError, ValueError):
            return None

    def keep(self, result: Result) -> None:
        """Write the result down; it is on the disk when this returns."""
        write_atomically(self.folder / "result.json", result.model_dump_json().encode())

    def set_aside(self) -> None:
        """Keep the files, but never hand in the result again."""
        result = self.folder / "result.json"
        if result.exists():
            result.replace(self.folder / "refused.json")

    def remove(self) -> None:
        """Forget the attempt; the result goes first, so that half a folder is never handed in."""
        (self.folder / "result.json").unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def entries(attempts_dir: Path) -> list[SpoolEntry]:
    """Return every attempt's folder, the oldest first."""
    if not attempts_dir.is_dir():
        return []
    folders = [path for path in attempts_dir.iterdir() if path.is_dir()]
    return [SpoolEntry(path) for path in sorted(folders, key=lambda path: path.stat().st_mtime)]


def remove_before(attempts_dir: Path, moment: datetime, keep: Iterable[str]) -> None:
    """Remove the folders of closed attempts that were last touched before ``moment``; ``keep`` are open ones."""
    kept = set(keep)
    for entry in entries(attempts_dir):
        if entry.attempt_id not in kept and entry.folder.stat().st_mtime < moment.timestamp():
            entry.remove()


def describe(name: str, path: Path) -> ArtifactRef:
    """Return the reference of a finished file: its name on the wire, SHA-256 and size."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return ArtifactRef(name=name, sha256=digest, size_bytes=file.tell())


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file (mode 0600) so that it is either absent, the old one, or whole, also after a power cut."""
    draft = path.with_name(path.name + ".draft")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_directory(path.parent)
