"""The raw log: everything a number is made of, in about two bytes a token.

One file is one phase: ``magic | SHA-256 of the rest | bytes of the header | of everything | zstd(header + columns)``.
The header is canonical JSON. Columns are little-endian integers; times are deltas, and every column is byte-shuffled,
so that the bytes which hardly change lie together. Stamps are whole microseconds since ``base_ns`` (CLOCK_MONOTONIC):
a nanosecond's lower digits are noise that no metric here can see, and would double the file.
"""

import hashlib
import itertools
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard
from pydantic import Field, ValidationError

from service.contract import canonical
from service.contract.builds import Sha256, Wire
from service.contract.errors import InvalidInput, TooLarge

RAW_LOG_SCHEMA = 1
MAGIC = b"BSRAWLG\x01"
MAX_FILE_BYTES = 128 << 20
MAX_RAW_BYTES = 256 << 20
MAX_HEADER_BYTES = 16 << 20
MAX_TEXT = 500

Ints = npt.NDArray[np.int64]

_FRAME = struct.Struct("<8s32sIQ")
_REQUEST_COLUMNS = 14
_EVENT_COLUMNS = 3


class Phase(StrEnum):
    """What a log covers: priming and warm-up, or one measured repetition."""

    WARM = "warm"
    MEASURE = "measure"


class Role(StrEnum):
    """Why a request was sent."""

    PRIME = "prime"
    """The shared prefix alone: first cold, then once more as proof that it is cached."""
    WARM = "warm"
    MEASURED = "measured"
    FILLER = "filler"
    """Keeps the concurrency up while the last measured requests end; no number is made of it."""


class Outcome(StrEnum):
    """How a request ended on the wire. Whether its content was right is for validity.py to say."""

    OK = "ok"
    """Status 200, a stream that ended with ``[DONE]``."""
    HTTP_ERROR = "http_error"
    SERVER_ERROR = "server_error"
    """An error event inside a stream of status 200."""
    BAD_RESPONSE = "bad_response"
    """Not HTTP, not an event stream, or not JSON inside."""
    TRUNCATED = "truncated"
    """Closed in good order before ``[DONE]``."""
    RESET = "reset"
    STALLED = "stalled"
    """No byte for the plan's ``stall_s``."""
    DEADLINE = "deadline"
    UNREACHABLE = "unreachable"
    """No connection, so nothing was sent."""


class CountedBy(StrEnum):
    """What the tokens of an event were counted by, best first."""

    IDS = "ids"
    USAGE = "usage"
    """Growth of the continuous usage."""
    EVENTS = "events"
    """Nothing better than one token an event: unproven."""


class ClientFigures(Wire):
    """The load generator's own certificate over the phase."""

    loop_lag_p50_ms: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    loop_lag_p99_ms: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    loop_lag_max_ms: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    turnaround_p99_ms: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """From the end of a slot's request to the first byte of its next one."""
    cpu_s: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    reconnects: int = Field(default=0, ge=0)


class LogHeader(Wire):
    """What a log is of."""

    raw_log_schema: int = RAW_LOG_SCHEMA
    ruler_version: int
    workload: Sha256
    prompts: Sha256
    phase: Phase
    repetition: int = Field(ge=0)
    """From 1; 0 for priming and warm-up."""
    base_ns: int = Field(ge=0, lt=2**63)
    client: ClientFigures


@dataclass(frozen=True)
class Usage:
    """Token counts by the server's own account; None where it gave none."""

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None
    continuous: int | None = None
    """Completion tokens by the last continuous usage, that is, in the last event with a choice."""


@dataclass(frozen=True, eq=False)
class RequestRecord:
    """One request. The three arrays hold one entry for each event that carried at least one token, in order.

    ``event_us`` (int64) is the stamp of the read that completed the event, ``tokens`` (int64, at least 1) how many it
    carried, ``shared`` (int64, 0 or 1) whether it came with the same read as the event before it. All times are
    microseconds since the header's ``base_ns``; ``end_us`` is when the response ended, whichever way.
    """

    index: int
    role: Role
    prompt_tokens: int
    send_us: int
    end_us: int
    event_us: Ints
    tokens: Ints
    shared: Ints
    outcome: Outcome
    finish_reason: str | None = None
    usage: Usage = Usage()
    counted_by: CountedBy = CountedBy.IDS
    error: str = ""

    @property
    def output_tokens(self) -> int:
        """Tokens that arrived."""
        return int(self.tokens.sum())


@dataclass(frozen=True, eq=False)
class RawLog:
    """A header and its requests, in the order in which they were sent."""

    header: LogHeader
    requests: Sequence[RequestRecord]


def encode(log: RawLog) -> bytes:
    """Return the file; decode gives an equal log. Raises InvalidInput for a log that breaks the format's rules
    (times that go backwards, an event without a token) and TooLarge beyond MAX_RAW_BYTES or MAX_HEADER_BYTES."""
    strings = _Strings()
    rows = np.array([_row(r, strings) for r in log.requests], dtype=np.int64).reshape(-1, _REQUEST_COLUMNS)
    events = [_event_columns(r) for r in log.requests]
    joined = np.concatenate(events, axis=1) if events else np.zeros((_EVENT_COLUMNS, 0), dtype=np.int64)
    header = canonical.encode(
        {
            "about": log.header.model_dump(mode="json"),
            "strings": strings.table,
            "requests": rows.shape[0],
            "events": joined.shape[1],
        }
    )
    rows[1:, 3] = np.diff(rows[:, 3])
    _check(rows, joined)
    raw = b"".join([header, *(_shuffle(column) for column in rows.T), *(_shuffle(column) for column in joined)])
    if len(header) > MAX_HEADER_BYTES or len(raw) > MAX_RAW_BYTES:
        raise TooLarge(f"the raw log holds {len(raw)} bytes; at most {MAX_RAW_BYTES} are allowed")
    level = 19 if len(raw) < 32 << 20 else 9
    packed = zstandard.ZstdCompressor(level=level, write_content_size=True).compress(raw)
    rest = struct.pack("<IQ", len(header), len(raw)) + packed
    return MAGIC + hashlib.sha256(rest).digest() + rest


def decode(data: bytes) -> RawLog:
    """Return the log in a file's bytes. Raises InvalidInput, saying what is wrong, for a file that is foreign,
    damaged or of another schema, and TooLarge for one that would not fit; never unpacks more than it announces."""
    try:
        return _decode(data)
    except (ValidationError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise InvalidInput(
            f"raw log: its content makes no sense ({type(error).__name__}: {error})"[:MAX_TEXT]
        ) from error


def _decode(data: bytes) -> RawLog:
    header, raw = _unpack(data)
    about = LogHeader.model_validate(header["about"])
    if about.raw_log_schema != RAW_LOG_SCHEMA:
        raise InvalidInput(f"raw log: schema {about.raw_log_schema}; this version reads {RAW_LOG_SCHEMA}")
    n, m, strings = int(header["requests"]), int(header["events"]), list(header["strings"])
    if n < 0 or m < 0 or len(raw) != 8 * (n * _REQUEST_COLUMNS + m * _EVENT_COLUMNS):
        raise InvalidInput(f"raw log: {len(raw)} bytes of columns do not hold {n} requests and {m} events")
    split = 8 * n * _REQUEST_COLUMNS
    rows = np.stack([_unshuffle(raw[8 * n * k : 8 * n * (k + 1)]) for k in range(_REQUEST_COLUMNS)], axis=1)
    at = [split + 8 * m * k for k in range(_EVENT_COLUMNS + 1)]
    events = np.stack([_unshuffle(raw[a:b]) for a, b in itertools.pairwise(at)])
    _check(rows, events)
    rows[:, 3] = np.cumsum(rows[:, 3])
    ends = np.cumsum(rows[:, 5])
    return RawLog(
        about, [_record(row, events[:, end - row[5] : end], strings) for row, end in zip(rows, ends, strict=True)]
    )


def _unpack(data: bytes) -> tuple[dict[str, Any], bytes]:
    if len(data) > MAX_FILE_BYTES:
        raise TooLarge(f"raw log: {len(data)} bytes; at most {MAX_FILE_BYTES} are read")
    if len(data) < _FRAME.size or not data.startswith(MAGIC):
        raise InvalidInput("raw log: this is not a raw log (its first bytes are wrong)")
    _, digest, header_bytes, raw_bytes = _FRAME.unpack_from(data)
    if hashlib.sha256(data[len(MAGIC) + 32 :]).digest() != digest:
        raise InvalidInput("raw log: damaged (its checksum does not match)")
    if raw_bytes > MAX_RAW_BYTES or header_bytes > min(raw_bytes, MAX_HEADER_BYTES):
        raise TooLarge(f"raw log: announces {raw_bytes} bytes; at most {MAX_RAW_BYTES} are unpacked")
    packed = data[_FRAME.size :]
    try:
        if zstandard.get_frame_parameters(packed).content_size != raw_bytes:
            raise InvalidInput("raw log: the packed part has another size than announced")
        raw = zstandard.ZstdDecompressor().decompress(packed, max_output_size=raw_bytes)
    except zstandard.ZstdError as error:
        raise InvalidInput(f"raw log: cannot be unpacked ({error})") from error
    header: dict[str, Any] = json.loads(raw[:header_bytes])
    return header, raw[header_bytes:]


class _Strings:
    """Every distinct text once; -1 stands for none."""

    def __init__(self) -> None:
        self.table: list[str] = []
        self._index: dict[str, int] = {}

    def put(self, text: str | None) -> int:
        if text is None:
            return -1
        text = text[:MAX_TEXT].encode(errors="replace").decode()
        if text not in self._index:
            self._index[text] = len(self.table)
            self.table.append(text)
        return self._index[text]


def _row(request: RequestRecord, strings: _Strings) -> list[int]:
    usage = request.usage
    known = [-1 if n is None else n for n in (usage.prompt, usage.completion, usage.cached, usage.continuous)]
    words = (request.outcome, request.counted_by, request.finish_reason, request.error)
    return [
        request.index,
        strings.put(request.role),
        request.prompt_tokens,
        request.send_us,
        request.end_us - request.send_us,
        len(request.event_us),
        *(strings.put(word) for word in words),
        *known,
    ]


def _event_columns(request: RequestRecord) -> Ints:
    return np.stack([np.diff(request.event_us, prepend=request.send_us), request.tokens, request.shared]).astype(
        np.int64
    )


def _record(row: Ints, events: Ints, strings: list[str]) -> RequestRecord:
    index, role, prompt_tokens, send_us, took_us, _, outcome, counted_by, finish, error, *usage = (int(n) for n in row)
    if min(role, outcome, counted_by, error) < 0 or finish < -1:
        raise ValueError("a text that is missing")
    return RequestRecord(
        index=index,
        role=Role(strings[role]),
        prompt_tokens=prompt_tokens,
        send_us=send_us,
        end_us=send_us + took_us,
        event_us=send_us + np.cumsum(events[0]),
        tokens=events[1],
        shared=events[2],
        outcome=Outcome(strings[outcome]),
        finish_reason=None if finish == -1 else strings[finish],
        usage=Usage(*(None if n == -1 else n for n in usage)),
        counted_by=CountedBy(strings[counted_by]),
        error=strings[error],
    )


def _check(rows: Ints, events: Ints) -> None:
    """Rules of the format, on columns whose times are deltas."""
    if min(rows[:, 3:6].min(initial=0), events[0].min(initial=0)) < 0:
        raise InvalidInput("raw log: times go backwards")
    if max(rows[:, 3:5].astype(float).sum(), events[0].astype(float).sum()) > 2**53:
        raise InvalidInput("raw log: times are out of range")
    if events[1].min(initial=1) < 1 or events[2].min(initial=0) < 0 or events[2].max(initial=0) > 1:
        raise InvalidInput("raw log: an event carries no token, or its flag is neither 0 nor 1")
    if int(rows[:, 5].astype(float).sum()) != events.shape[1]:
        raise InvalidInput("raw log: requests and events do not add up")


def _shuffle(column: Ints) -> bytes:
    return np.ascontiguousarray(column.astype("<i8")).view(np.uint8).reshape(-1, 8).T.tobytes()


def _unshuffle(data: bytes) -> Ints:
    planes = np.frombuffer(data, dtype=np.uint8).reshape(8, -1)
    return np.ascontiguousarray(planes.T).view("<i8").reshape(-1).astype(np.int64)
