"""One keep-alive connection. While the clock runs, a read costs a stamp and an append; parsing comes later.

httptools is fed as bytes come in, but only to find where a response ends.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

import httptools

Read = tuple[int, bytes]
"""Monotonic nanoseconds of the socket read, and what it gave."""
NowNs = Callable[[], int]


class Ending(StrEnum):
    """How an exchange ended, by the connection alone."""

    COMPLETE = "complete"
    CLOSED = "closed"
    RESET = "reset"
    GARBLED = "garbled"
    STALLED = "stalled"
    DEADLINE = "deadline"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True)
class Exchange:
    """One request and everything that came back, unparsed."""

    send_ns: int
    end_ns: int
    reads: Sequence[Read]
    ending: Ending
    status: int = 0
    detail: str = ""


class Connection(asyncio.Protocol):
    """One exchange at a time. Nothing that the server does raises: it becomes the exchange's ending."""

    def __init__(self, now_ns: NowNs) -> None:
        self._now_ns = now_ns
        self._transport: asyncio.Transport | None = None
        self._parser: Any = None
        self._reads: list[Read] = []
        self._send_ns = 0
        self._answer: asyncio.Future[Exchange] | None = None
        self._closed = asyncio.get_running_loop().create_future()

    @property
    def usable(self) -> bool:
        """Whether another request may be sent on it."""
        return self._transport is not None and not self._transport.is_closing() and self._answer is None

    @property
    def quiet_since_ns(self) -> int | None:
        """When the last byte came, or the request was sent; None if nothing is under way."""
        if self._answer is None:
            return None
        return self._reads[-1][0] if self._reads else self._send_ns

    async def exchange(self, parts: Sequence[bytes]) -> Exchange:
        """Send a request and return what became of it; the stamp is taken before its first byte is handed over."""
        if self._transport is None or not self.usable:
            raise RuntimeError("the connection is not usable")
        self._answer = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._reads = []
        answer = self._answer
        self._send_ns = self._now_ns()
        self._transport.writelines(parts)
        return await answer

    def give_up(self, ending: Ending, detail: str = "") -> None:
        """End the exchange under way, if any, from outside, and drop the connection."""
        self._finish(ending, detail)
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Close the connection and wait until it is closed."""
        if self._transport is not None:
            self._transport.abort()
            await self._closed

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance

    def data_received(self, data: bytes) -> None:
        now_ns = self._now_ns()
        self._reads.append((now_ns, data))
        if self._answer is None:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.give_up(Ending.GARBLED, str(error))

    def on_message_complete(self) -> None:
        keep = self._parser.should_keep_alive()
        self._finish(Ending.COMPLETE, "")
        if not keep and self._transport is not None:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish(Ending.CLOSED if exc is None else Ending.RESET, "" if exc is None else str(exc))
        self._transport = None
        if not self._closed.done():
            self._closed.set_result(None)

    def _finish(self, ending: Ending, detail: str) -> None:
        answer, self._answer = self._answer, None
        if answer is None or answer.done():
            return
        status = int(self._parser.get_status_code())
        end_ns = self._reads[-1][0] if ending is Ending.COMPLETE else self._now_ns()
        answer.set_result(Exchange(self._send_ns, end_ns, self._reads, ending, status, detail))


async def connect(host: str, port: int, now_ns: NowNs, timeout_s: float = 10.0) -> Connection:
    """Open a connection; raises OSError (TimeoutError included) if there is none."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(timeout_s):
        _, connection = await loop.create_connection(lambda: Connection(now_ns), host, port)
    return connection


def post(host: str, port: int, path: str, body: Sequence[bytes]) -> tuple[bytes, ...]:
    """Return a POST request as parts: a head for the body's parts."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        f"Accept: text/event-stream\r\nContent-Length: {sum(map(len, body))}\r\n\r\n"
    )
    return (head.encode(), *body)


def get(host: str, port: int, path: str) -> tuple[bytes, ...]:
    """Return a GET request, after which the server closes."""
    return (f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode(),)
