"""A profile: everything that makes one simulated build what it is, read from a TOML file and checked key by key.

Errors: ProfileError, whose text names the file and the key and says what is allowed.
"""

import hashlib
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

KERNELS = ("non_persistent", "persistent")
FAULT_KINDS = (
    "in_band_error",
    "truncated_close",
    "reset",
    "short_output",
    "abort",
    "multi_token_chunks",
    "coalesced",
    "count_mismatch",
    "no_usage",
    "empty_text",
    "stall",
    "crash_at_request_n",
)


class ProfileError(ValueError):
    """A profile that can't be used: unreadable, not the expected bytes, an unknown key or a bad value."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault on demand: it strikes every `every`-th completion request, or only number `at_request` (from 1).

    `after_tokens` is where in the output it strikes (None: half way), `size` the tokens of a chunk
    (multi_token_chunks), the events of a write (coalesced) or the tokens added to the reported count
    (count_mismatch), `seconds` the length of a stall in real seconds.
    """

    kind: str
    every: int | None
    at_request: int | None
    after_tokens: int | None
    size: int
    seconds: float

    def strikes(self, request_number: int) -> bool:
        """Whether the completion request of this number (from 1) is hit."""
        if self.at_request is not None:
            return request_number == self.at_request
        return self.every is not None and request_number % self.every == 0


@dataclass(frozen=True, slots=True)
class StartFailure:
    """The build never becomes ready: after `after_s` real seconds it prints `message` and exits with status 1."""

    message: str
    after_s: float


@dataclass(frozen=True, slots=True)
class Profile:
    """One simulated build. Formula and sources of the figures: steptime.py and the catalog's README.

    base_ms: the part of a step that does not depend on context; step_factor scales the whole step (0.88: 12 % less
    time a step); launch_sd and step_sd: standard deviations of the logarithm of the launch effect and of the noise of
    a step; start_s: real seconds from start to ready, never compressed; accuracy and flip_rate: answers.py.
    """

    version: str
    commit: str
    kernel: str
    base_ms: float
    layers: int
    bytes_per_token: int
    bandwidth_tb_s: float
    prefill_tokens_per_s: float
    launch_sd: float
    step_sd: float
    start_s: float
    step_factor: float = 1.0
    kv_blocks: int = 524288
    vocabulary_size: int = 163840
    accuracy: float = 0.92
    flip_rate: float = 0.01
    start_failure: StartFailure | None = None
    faults: tuple[Fault, ...] = field(default=())


class _Table:
    """A TOML table that is taken apart key by key; what is left over at the end is unknown."""

    def __init__(self, source: str, values: Mapping[str, object], prefix: str = "") -> None:
        self._source = source
        self._values = dict(values)
        self._prefix = prefix

    def refuse(self, key: str, problem: str) -> ProfileError:
        return ProfileError(f"{self._source}: key '{self._prefix}{key}': {problem}")

    def has(self, key: str) -> bool:
        return key in self._values

    def _take(self, key: str) -> object:
        if key not in self._values:
            raise self.refuse(key, "missing")
        return self._values.pop(key)

    def text(self, key: str, allowed: tuple[str, ...] = ()) -> str:
        value = self._take(key)
        if not isinstance(value, str) or not value:
            raise self.refuse(key, f"must be a non-empty string, is {value!r}")
        if allowed and value not in allowed:
            raise self.refuse(key, f"must be one of {', '.join(allowed)}, is {value!r}")
        return value

    def number(self, key: str, low: float, high: float, default: float | None = None) -> float:
        if default is not None and key not in self._values:
            return default
        value = self._take(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.refuse(key, f"must be a number, is {value!r}")
        if not low <= value <= high:
            raise self.refuse(key, f"must be from {low:g} to {high:g}, is {value!r}")
        return float(value)

    def whole(self, key: str, low: int, high: int, default: int | None = None) -> int:
        if default is not None and key not in self._values:
            return default
        value = self._take(key)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.refuse(key, f"must be a whole number, is {value!r}")
        if not low <= value <= high:
            raise self.refuse(key, f"must be from {low} to {high}, is {value!r}")
        return value

    def table(self, key: str) -> "_Table":
        value = self._take(key)
        if not isinstance(value, dict):
            raise self.refuse(key, f"must be a table, is {value!r}")
        return _Table(self._source, value, f"{self._prefix}{key}.")

    def keys(self) -> tuple[str, ...]:
        return tuple(self._values)

    def finish(self, known: tuple[str, ...]) -> None:
        for key in self._values:
            raise self.refuse(key, f"unknown; known are {', '.join(known)}")


def load_profile(path: Path, expected_sha256: str | None = None) -> Profile:
    """The profile in a file. Raises ProfileError, also when the SHA-256 (hex) of its bytes isn't the expected."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from error
    actual = hashlib.sha256(content).hexdigest()
    if expected_sha256 is not None and actual != expected_sha256.lower():
        raise ProfileError(f"{path}: SHA-256 is {actual}, expected {expected_sha256}: the profile was changed")
    try:
        values = tomllib.loads(content.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ProfileError(f"{path}: is not TOML: {error}") from error
    return read_profile(str(path), values)


def read_profile(source: str, values: Mapping[str, object]) -> Profile:
    """The profile in a parsed TOML document; `source` names it in errors. Raises ProfileError."""
    table = _Table(source, values)
    profile = Profile(
        version=table.text("version"),
        commit=table.text("commit"),
        kernel=table.text("kernel", KERNELS),
        base_ms=table.number("base_ms", 0.1, 10_000),
        layers=table.whole("layers", 1, 1_000),
        bytes_per_token=table.whole("bytes_per_token", 1, 1_000_000),
        bandwidth_tb_s=table.number("bandwidth_tb_s", 0.001, 1_000),
        prefill_tokens_per_s=table.number("prefill_tokens_per_s", 1, 1e9),
        launch_sd=table.number("launch_sd", 0, 0.5),
        step_sd=table.number("step_sd", 0, 0.5),
        start_s=table.number("start_s", 0, 3_600),
        step_factor=table.number("step_factor", 0.01, 100, 1.0),
        kv_blocks=table.whole("kv_blocks", 1, 2**32, 524288),
        vocabulary_size=table.whole("vocabulary_size", 258, 2**31, 163840),
        accuracy=table.number("accuracy", 0, 1, 0.92),
        flip_rate=table.number("flip_rate", 0, 0.5, 0.01),
        start_failure=_start_failure(table),
        faults=_faults(table),
    )
    table.finish(tuple(Profile.__dataclass_fields__))
    return profile


def _start_failure(table: _Table) -> StartFailure | None:
    if not table.has("start_failure"):
        return None
    inner = table.table("start_failure")
    failure = StartFailure(message=inner.text("message"), after_s=inner.number("after_s", 0, 3_600))
    inner.finish(("message", "after_s"))
    return failure


def _faults(table: _Table) -> tuple[Fault, ...]:
    if not table.has("faults"):
        return ()
    inner = table.table("faults")
    kinds = inner.keys()
    for kind in kinds:
        if kind not in FAULT_KINDS:
            raise inner.refuse(kind, f"unknown kind of fault; known are {', '.join(FAULT_KINDS)}")
    return tuple(_fault(kind, inner) for kind in kinds)


def _fault(kind: str, faults: _Table) -> Fault:
    table = faults.table(kind)
    if table.has("every") == table.has("at_request"):
        raise table.refuse("every", "exactly one of every and at_request must be given")
    fault = Fault(
        kind=kind,
        every=table.whole("every", 1, 10**9) if table.has("every") else None,
        at_request=table.whole("at_request", 1, 10**9) if table.has("at_request") else None,
        after_tokens=table.whole("after_tokens", 0, 10**6) if table.has("after_tokens") else None,
        size=table.whole("size", 1, 10_000, 1 if kind == "count_mismatch" else 4),
        seconds=table.number("seconds", 0.001, 3_600, 1.0),
    )
    table.finish(("every", "at_request", "after_tokens", "size", "seconds"))
    return fault
