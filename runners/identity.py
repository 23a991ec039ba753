"""Who this runner is: what enrolment gave it, in one file that only its user can read, and the lock on its state."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import Field

from runners.spool import write_atomically
from service.contract.builds import BuildKind, Name, Wire


class StateError(Exception):
    """The state directory can't be used: not enrolled, in use by another runner, not writable. Says what to do."""


class RunnerIdentity(Wire):
    """``identity.json``, mode 0600. The token is the runner's own."""

    runner_id: str
    token: str = Field(repr=False)
    controller: str
    name: Name
    slots: int
    hardware: list[Name]
    build_kinds: list[BuildKind]


def load_identity(state_dir: Path) -> RunnerIdentity:
    """Return who this runner is. Raises StateError when it is not enrolled, or when the file is damaged."""
    path = state_dir / "identity.json"
    try:
        return RunnerIdentity.model_validate_json(path.read_bytes())
    except FileNotFoundError as error:
        raise StateError(f"{state_dir} holds no enrolled runner: run 'backslide-runner enrol' first") from error
    except OSError as error:
        raise StateError(f"{path} can't be read: {error.strerror}") from error
    except ValueError as error:
        raise StateError(f"{path} is damaged: enrol again with --replace") from error


def save_identity(state_dir: Path, identity: RunnerIdentity) -> None:
    """Store who this runner is, readable for its user only."""
    write_atomically(state_dir / "identity.json", identity.model_dump_json(indent=2).encode())


@contextmanager
def locked(state_dir: Path) -> Iterator[None]:
    """Hold the state directory, made if need be. Raises StateError when another process holds it.

    The kernel drops the lock when its holder dies. Children don't inherit it.
    """
    try:
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(state_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StateError(f"{state_dir} can't be used: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StateError(
                f"another runner is running with {state_dir}: stop it, or choose another folder"
            ) from error
        yield
    finally:
        os.close(descriptor)


def is_locked(state_dir: Path) -> bool:
    """Return whether a runner is running with this state directory."""
    try:
        with (state_dir / "lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except OSError:
        return False
