"""HTTP/1.1 on one connection: keep-alive, chunked answers, one request at a time in the order they came."""

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import cast

import httptools

_MAX_BODY_BYTES = 64 * 2**20
_MAX_HEAD_BYTES = 64 * 2**10
_PHRASES = {status.value: status.phrase for status in HTTPStatus}


@dataclass(frozen=True, slots=True)
class Request:
    """One received request; `path` without the query."""

    method: str
    path: str
    body: bytes
    keep_alive: bool
    chunked: bool


class Connection(asyncio.Protocol):
    """One client's connection. `handle` is called with each complete request and must see to it that exactly one
    answer follows: respond(), or begin_stream(), write_event()… and end_stream(), or one of the two violent ends.
    """

    def __init__(self, handle: Callable[["Connection", Request], None], siblings: "set[Connection]") -> None:
        self._handle = handle
        self._siblings = siblings
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._queue: deque[Request] = deque()
        self._current: Request | None = None
        self._refused = False
        self._pumping = False
        self._heads = 0
        self._forget_message()
        self.on_lost: Callable[[], None] | None = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport is one in all but its class.
        self._transport = cast(asyncio.Transport, transport)
        self._siblings.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._siblings.discard(self)
        self._queue.clear()
        if self.on_lost is not None:
            self.on_lost()
            self.on_lost = None

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        heads, in_head = self._heads, self._in_head
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._refuse(400, b"Invalid HTTP request received.")
            return
        # The parser says nothing of a header that has not ended, so an endless one is seen by its bytes alone.
        if in_head and self._in_head and heads == self._heads:
            self._head_bytes += len(data)
            if self._head_bytes > _MAX_HEAD_BYTES:
                self._refuse(431, b"Request head too large.")

    # httptools

    def _forget_message(self) -> None:
        self._url = b""
        self._body: list[bytes] = []
        self._head_bytes = 0
        self._in_head = True
        self._body_bytes = 0
        self._continue = False

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"expect" and value.lower() == b"100-continue":
            self._continue = True

    def on_headers_complete(self) -> None:
        self._heads += 1
        self._in_head = False
        if self._continue and self._transport is not None and not self._refused:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > _MAX_BODY_BYTES:
            self._body.clear()
            self._refuse(413, b"Request body too large.")
        elif not self._refused:
            self._body.append(body)

    def on_message_complete(self) -> None:
        if self._refused:
            return
        request = Request(
            method=self._parser.get_method().decode("latin-1"),
            path=self._url.split(b"?", 1)[0].decode("latin-1"),
            body=b"".join(self._body),
            keep_alive=self._parser.should_keep_alive(),
            chunked=self._parser.get_http_version() != "1.0",
        )
        self._forget_message()
        self._queue.append(request)
        if self._current is None:
            self._pump()
        elif self._transport is not None and not self._transport.is_closing():
            # A client that sends ahead waits: only one answer is in work.
            self._transport.pause_reading()

    def _refuse(self, status: int, text: bytes) -> None:
        """Answer what is not a request and close, unless an answer is in work, which is cut off."""
        if self._refused or self._transport is None:
            return
        self._refused = True
        if self._current is None:
            self._transport.write(_head(status, b"text/plain; charset=utf-8", len(text), close=True) + text)
        self._transport.close()

    def _pump(self) -> None:
        """Hand on requests until one is in work. Not re-entered by the answers that come at once."""
        if self._pumping:
            return
        self._pumping = True
        while self._current is None and self._queue:
            self._current = self._queue.popleft()
            self._handle(self, self._current)
        self._pumping = False
        if self._current is None and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # the answer

    @property
    def lost(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._transport is None or self._transport.is_closing()

    def respond(self, status: int, body: bytes, content_type: bytes = b"application/json") -> None:
        """Send a whole answer."""
        if self._transport is None or self._current is None:
            return
        close = not self._current.keep_alive
        self._transport.write(_head(status, content_type, len(body), close=close) + body)
        self._finish(close)

    def begin_stream(self) -> None:
        """Send the head of an event stream."""
        if self._transport is None or self._current is None:
            return
        close = not (self._current.keep_alive and self._current.chunked)
        content_type = b"text/event-stream; charset=utf-8"
        self._transport.write(_head(200, content_type, None, close=close, chunked=self._current.chunked))

    def write_event(self, event: bytes) -> None:
        """Send bytes of the stream in one write."""
        if self._transport is None or self._current is None:
            return
        self._transport.write(b"%x\r\n%b\r\n" % (len(event), event) if self._current.chunked else event)

    def end_stream(self) -> None:
        """End the stream properly."""
        if self._transport is None or self._current is None:
            return
        if self._current.chunked:
            self._transport.write(b"0\r\n\r\n")
        self._finish(not (self._current.keep_alive and self._current.chunked))

    def close(self) -> None:
        """Close after what was written; in the midst of an answer that is a truncation."""
        if self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        """Reset the connection (RST): with a linger time of zero the kernel drops what is unsent."""
        if self._transport is not None:
            plain: socket.socket = self._transport.get_extra_info("socket")
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()

    def _finish(self, close: bool) -> None:
        self.on_lost = None
        if close:
            self.close()
        else:
            self._current = None
            self._pump()


def _head(status: int, content_type: bytes, length: int | None, *, close: bool, chunked: bool = False) -> bytes:
    lines = [
        b"HTTP/1.1 %d %b" % (status, _PHRASES[status].encode()),
        b"date: " + formatdate(usegmt=True).encode(),
        b"server: uvicorn",
    ]
    if length is not None:
        lines.append(b"content-length: %d" % length)
    lines.append(b"content-type: " + content_type)
    if close:
        lines.append(b"connection: close")
    if chunked:
        lines.append(b"transfer-encoding: chunked")
    return b"\r\n".join(lines) + b"\r\n\r\n"
