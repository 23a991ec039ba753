"""A raw HTTP server that streams what a script says: each fault of the wire is a script."""

import asyncio
import json
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

Script = Callable[["Answer"], Awaitable[None]]


@dataclass
class Answer:
    """One request being answered. ``sent_ns`` holds when each token-carrying write was handed to the socket."""

    stub: "Stub"
    number: int
    request: dict[str, Any]
    writer: asyncio.StreamWriter
    chunked: bool = True
    cached: int = 0
    tokens: int = 0
    sent_ns: list[int] = field(default_factory=list)

    @property
    def wanted(self) -> int:
        return int(self.request["max_tokens"])

    @property
    def prompt(self) -> list[int]:
        prompt: list[int] = self.request["prompt"]
        return prompt

    def write(self, data: bytes) -> None:
        self.writer.write(b"%x\r\n%b\r\n" % (len(data), data) if self.chunked else data)

    def head(self, status: str = "200 OK", kind: str = "text/event-stream; charset=utf-8") -> None:
        length = b"transfer-encoding: chunked\r\n" if self.chunked else b"connection: close\r\n"
        self.writer.write(f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n".encode() + length + b"\r\n")

    def chunk(self, tokens: int = 1, finish: str | None = None, **changes: Any) -> bytes:
        """One event with tokens in vLLM's shape; a change to None drops the key."""
        first = self.tokens == 0
        self.tokens += tokens
        choice = {
            "index": 0,
            "text": "é" * tokens,
            "token_ids": [7] * tokens,
            "finish_reason": finish,
            "logprobs": None,
        }
        choice["prompt_token_ids"] = self.prompt if first else None
        usage = {"prompt_tokens": len(self.prompt), "completion_tokens": self.tokens}
        event = {"id": "cmpl-1", "choices": [choice], "usage": usage}
        choice.update({k: v for k, v in changes.items() if k != "usage"})
        if "usage" in changes:
            event["usage"] = changes["usage"]
        return b"data: " + json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"

    def usage(self, completion: int | None = None) -> bytes:
        usage = {
            "prompt_tokens": len(self.prompt),
            "completion_tokens": self.tokens if completion is None else completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }
        return b"data: " + json.dumps({"id": "cmpl-1", "choices": [], "usage": usage}).encode() + b"\n\n"

    def token(self, tokens: int = 1, **changes: Any) -> None:
        finish = "length" if self.tokens + tokens == self.wanted else None
        data = self.chunk(tokens, **{"finish": finish, **changes})
        self.sent_ns.append(time.monotonic_ns())
        self.write(data)

    def end(self, usage: bool = True, done: bool = True) -> None:
        if usage:
            self.write(self.usage())
        if done:
            self.write(b"data: [DONE]\n\n")
        self.close_chunks()

    def close_chunks(self) -> None:
        if self.chunked:
            self.writer.write(b"0\r\n\r\n")

    def reset(self) -> None:
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


async def clean(answer: Answer) -> None:
    """Everything right, each event in a read of its own as far as the loop allows."""
    answer.head()
    for _ in range(answer.wanted):
        answer.token()
        await asyncio.sleep(0.001)
    answer.end()


class Stub:
    """Serves on a free port of 127.0.0.1 until closed; keeps a prefix cache by blocks and vLLM's counters."""

    def __init__(self, script: Script = clean, block: int = 16, metrics: bool = True) -> None:
        self.script = script
        self.block = block
        self.metrics = metrics
        self.answers: list[Answer] = []
        self.bodies: list[bytes] = []
        self.connections = 0
        self.preemptions = 0
        self.miscounted = 0
        self._seen: set[tuple[int, ...]] = set()
        self._hits = self._prompt_tokens = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aenter__(self) -> "Stub":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=16 << 20)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def stop_listening(self) -> None:
        assert self._server is not None
        self._server.close()

    async def close(self) -> None:
        self.stop_listening()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while line := await reader.readline():
                length = 0
                while (head := await reader.readline()) not in (b"\r\n", b""):
                    name, _, value = head.partition(b":")
                    length = int(value) if name.lower() == b"content-length" else length
                body = await reader.readexactly(length)
                if line.startswith(b"GET /metrics"):
                    self._answer_metrics(writer)
                    break
                answer = self._note(body, writer)
                await self.script(answer)
                await writer.drain()
                if writer.is_closing() or not answer.chunked:
                    break
        except (asyncio.CancelledError, ConnectionError, asyncio.IncompleteReadError):
            writer.transport.abort()
        finally:
            self._tasks.discard(task)
            writer.close()

    def _note(self, body: bytes, writer: asyncio.StreamWriter) -> Answer:
        answer = Answer(self, len(self.answers), json.loads(body), writer)
        self.bodies.append(body)
        self.answers.append(answer)
        prompt = answer.prompt
        keys = [tuple(prompt[:end]) for end in range(self.block, len(prompt) + 1, self.block)]
        hits = 0
        for key in keys[: (len(prompt) - 1) // self.block]:
            if key not in self._seen:
                break
            hits += self.block
        self._seen.update(keys)
        answer.cached = hits
        self._hits += hits
        self._prompt_tokens += len(prompt)
        return answer

    def _answer_metrics(self, writer: asyncio.StreamWriter) -> None:
        generated = sum(a.tokens for a in self.answers) + self.miscounted
        values = {
            "prompt_tokens_total": self._prompt_tokens,
            "generation_tokens_total": generated,
            "prefix_cache_queries_total": self._prompt_tokens,
            "prefix_cache_hits_total": self._hits,
            "num_preemptions_total": self.preemptions,
            "num_requests_running": 0,
        }
        lines = [f'vllm:{k}{{engine="0",model_name="a b}}"}} {float(v)}' for k, v in values.items()]
        text = "\n".join(["# HELP vllm:x something", *lines, ""]).encode()
        status = b"200 OK" if self.metrics else b"404 Not Found"
        writer.write(b"HTTP/1.1 %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (status, len(text), text))
