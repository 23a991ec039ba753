"""From reads to a record: HTTP, server-sent events and JSON are taken apart here, after the clock has stopped.

An event belongs to the read that completed it. Its tokens are counted by its token ids, else by the growth of the
continuous usage, else as one; which of these it was is part of the record.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httptools
import numpy as np
import orjson

from runners.load.wire import Ending, Exchange, Read
from service.ruler.rawlog import MAX_TEXT, CountedBy, Outcome, RequestRecord, Role, Usage

_MOST = 2**53
_WORST_FIRST = (CountedBy.EVENTS, CountedBy.USAGE, CountedBy.IDS)
_BY_ENDING = {
    Ending.RESET: Outcome.RESET,
    Ending.GARBLED: Outcome.BAD_RESPONSE,
    Ending.STALLED: Outcome.STALLED,
    Ending.DEADLINE: Outcome.DEADLINE,
    Ending.UNREACHABLE: Outcome.UNREACHABLE,
}


@dataclass(frozen=True)
class Ticket:
    """One request that is to be sent, complete."""

    index: int
    role: Role
    prompt_tokens: int
    parts: tuple[bytes, ...]


class Response:
    """An HTTP response in pieces, each with the stamp of its read."""

    def __init__(self, reads: Sequence[Read]) -> None:
        self.content_type = ""
        self.pieces: list[Read] = []
        self._at_ns = 0
        self._parser = httptools.HttpResponseParser(self)
        for at_ns, data in reads:
            self._at_ns = at_ns
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserError:
                break  # the exchange's ending says so

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"content-type":
            self.content_type = value.decode(errors="replace").lower()

    def on_body(self, data: bytes) -> None:
        self.pieces.append((self._at_ns, data))

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(data for _, data in self.pieces)


def events(pieces: Sequence[Read]) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield each event of a stream that was completed, as stamp of the completing read, name and data.

    Any split of the stream into pieces gives the same events, by the rules of the HTML standard's event streams;
    comments and events without data are left out.
    """
    rest, name = b"", b""
    lines: list[bytes] = []
    for at_ns, piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        for raw in whole:
            line = raw.removesuffix(b"\r")
            key, _, value = line.partition(b":")
            if not line:
                if lines:
                    yield at_ns, name, b"\n".join(lines)
                name, lines = b"", []
            elif key == b"data":
                lines.append(value.removeprefix(b" "))
            elif key == b"event":
                name = value.removeprefix(b" ")


@dataclass
class Tally:
    """What has been read of a stream so far."""

    stamps_ns: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None
    continuous: int | None = None
    counted_by: CountedBy = CountedBy.IDS
    done: bool = False
    error: str = ""
    error_code: int | None = None
    garbled: str = ""

    def take(self, at_ns: int, name: bytes, data: bytes) -> None:
        """Take in one event."""
        if data == b"[DONE]":
            self.done = True
            return
        try:
            message = orjson.loads(data)
        except orjson.JSONDecodeError:
            self.garbled = self.garbled or f"an event is not JSON: {data[:80]!r}"
            return
        if not isinstance(message, dict):
            self.garbled = self.garbled or f"an event is no object: {data[:80]!r}"
        elif message.get("error") or message.get("object") == "error" or name == b"error":
            self._take_error(message)
        else:
            self._take_chunk(at_ns, message)

    def _take_error(self, message: dict[str, Any]) -> None:
        inner = message.get("error")
        about = inner if isinstance(inner, dict) else message
        self.error = self.error or str(about.get("message") or inner or message)[:MAX_TEXT] or "an error without a text"
        self.error_code = _count(about.get("code"))

    def _take_chunk(self, at_ns: int, message: dict[str, Any]) -> None:
        usage = message.get("usage") if isinstance(message.get("usage"), dict) else None
        choices = message.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            self._take_final_usage(usage)
            return
        choice = choices[0]
        if isinstance(choice.get("finish_reason"), str):
            self.finish_reason = choice["finish_reason"]
        tokens, by = self._count_tokens(choice, usage)
        self.counted_by = min(self.counted_by, by, key=_WORST_FIRST.index)
        if usage is not None:
            self.prompt = _count(usage.get("prompt_tokens"), self.prompt)
            self.continuous = _count(usage.get("completion_tokens"), self.continuous)
        if tokens > 0:
            self.stamps_ns.append(at_ns)
            self.tokens.append(tokens)

    def _count_tokens(self, choice: dict[str, Any], usage: dict[str, Any] | None) -> tuple[int, CountedBy]:
        ids = choice.get("token_ids")
        if isinstance(ids, list):
            return len(ids), CountedBy.IDS
        total = _count(usage.get("completion_tokens")) if usage else None
        if total is not None:
            return total - (self.continuous or 0), CountedBy.USAGE
        return 1, CountedBy.EVENTS

    def _take_final_usage(self, usage: dict[str, Any] | None) -> None:
        if usage is None:
            return
        self.prompt = _count(usage.get("prompt_tokens"), self.prompt)
        self.completion = _count(usage.get("completion_tokens"), self.completion)
        details = usage.get("prompt_tokens_details")
        if isinstance(details, dict):
            self.cached = _count(details.get("cached_tokens"), self.cached)


@dataclass(frozen=True)
class Recorded:
    """A request's record, and the error code that came with a failure, for the choice of a failure class."""

    record: RequestRecord
    error_code: int | None


def record(ticket: Ticket, exchange: Exchange, base_ns: int) -> Recorded:
    """Return the record of an exchange; whatever came back, there is one."""
    response = Response(exchange.reads)
    tally = Tally()
    streamed = exchange.status == 200 and "text/event-stream" in (response.content_type or "text/event-stream")
    for at_ns, name, data in events(response.pieces) if streamed else ():
        tally.take(at_ns, name, data)
    outcome, error = _outcome(exchange, response, tally, streamed)
    stamps = np.array(tally.stamps_ns, dtype=np.int64)
    shared = np.diff(stamps, prepend=stamps[:1] - 1) == 0
    usage = Usage(tally.prompt, tally.completion, tally.cached, tally.continuous)
    made = RequestRecord(
        index=ticket.index,
        role=ticket.role,
        prompt_tokens=ticket.prompt_tokens,
        send_us=(exchange.send_ns - base_ns) // 1000,
        end_us=(exchange.end_ns - base_ns) // 1000,
        event_us=(stamps - base_ns) // 1000,
        tokens=np.array(tally.tokens, dtype=np.int64),
        shared=shared.astype(np.int64),
        outcome=outcome,
        finish_reason=tally.finish_reason,
        usage=usage,
        counted_by=tally.counted_by,
        error=error[:MAX_TEXT],
    )
    return Recorded(made, exchange.status if outcome is Outcome.HTTP_ERROR else tally.error_code)


def _outcome(exchange: Exchange, response: Response, tally: Tally, streamed: bool) -> tuple[Outcome, str]:
    if tally.error:
        return Outcome.SERVER_ERROR, tally.error
    if exchange.ending in (Ending.COMPLETE, Ending.CLOSED) and exchange.status not in (0, 200):
        return Outcome.HTTP_ERROR, f"HTTP {exchange.status}: {response.body[:MAX_TEXT].decode(errors='replace')}"
    if tally.garbled or (exchange.status == 200 and not streamed):
        return Outcome.BAD_RESPONSE, tally.garbled or f"content type {response.content_type!r} is no event stream"
    if tally.done and exchange.ending in (Ending.COMPLETE, Ending.CLOSED):
        return Outcome.OK, ""
    return _BY_ENDING.get(exchange.ending, Outcome.TRUNCATED), exchange.detail


def _count(value: Any, otherwise: int | None = None) -> int | None:
    """Return a value that is a sane count as it is."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST else otherwise
