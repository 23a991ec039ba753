"""A simulated engine in a process of its own, and a raw client whose stamps are taken at the socket read."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
import orjson

ROOT = Path(__file__).resolve().parents[3]
CATALOG = ROOT / "images" / "catalog" / "simulated"
MODEL = "nonce-7"
WAIT_S = 30.0

FAST = """
version = "0.18.0"
commit = "bcf2be961"
kernel = "non_persistent"
base_ms = 1.0
layers = 61
bytes_per_token = 1152
bandwidth_tb_s = 4.8
prefill_tokens_per_s = 4000000
launch_sd = 0.0
step_sd = 0.0
start_s = 0.0
"""
"""A profile whose steps take about a millisecond: for tests of anything but time."""


class EngineProcess:
    """`serve` as a child: started by the constructor, ready when it has said so, ended by stop()."""

    def __init__(
        self, profile: Path, *arguments: str, environment: Mapping[str, str] | None = None, ready: bool = True
    ) -> None:
        command = [sys.executable, "-m", "images.simulated", "serve", "--profile-file", str(profile), "--port", "0"]
        self.process = subprocess.Popen(
            [*command, "--served-model-name", MODEL, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            text=True,
        )
        self.url = ""
        if ready:
            assert self.process.stdout is not None
            for line in self.process.stdout:
                if " on http://" in line:
                    self.url = line.split()[-1]
                    break
            if not self.url:
                _, errors = self.process.communicate(timeout=WAIT_S)
                raise AssertionError(f"the engine did not start: {errors}")

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def children(self) -> list[int]:
        """Process ids of its children."""
        text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in text.split()]

    def stop(self, signal_number: int = signal.SIGTERM) -> tuple[int, str]:
        """End it; returns exit status and what it wrote to standard error."""
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
        _, errors = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, errors

    def complete(self, prompt: str | list[int], max_tokens: int, **fields: object) -> httpx.Response:
        """A completion that is not streamed, greedy and of exactly max_tokens unless `fields` say otherwise."""
        body = completion_fields(prompt, max_tokens) | fields
        with httpx.Client(timeout=WAIT_S) as client:
            return client.post(f"{self.url}/v1/completions", content=orjson.dumps(body))

    def stream(self, prompt: str | list[int], max_tokens: int, **fields: object) -> list[str]:
        """The data of the events of a streamed completion, [DONE] included. Raises httpx.HTTPError if it is broken."""
        body = completion_fields(prompt, max_tokens) | {"stream": True} | fields
        with (
            httpx.Client(timeout=WAIT_S) as client,
            client.stream("POST", f"{self.url}/v1/completions", content=orjson.dumps(body)) as response,
        ):
            assert response.status_code == 200
            return [line[6:] for line in response.iter_lines() if line.startswith("data: ")]

    def metric(self, name: str, label: str = "") -> float:
        """One value of GET /metrics."""
        for line in httpx.get(f"{self.url}/metrics").text.splitlines():
            if line.startswith(f"vllm:{name}{{") and label in line:
                return float(line.rsplit(" ", 1)[1])
        raise AssertionError(f"no metric {name} {label}")


def completion_fields(prompt: str | list[int], max_tokens: int) -> dict[str, object]:
    """The body of a greedy completion of exactly max_tokens."""
    return {"model": MODEL, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}


def await_gone(pid: int) -> None:
    """Return when a process, any process, has ended. Fails after WAIT_S."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        asyncio.run(_readable(descriptor))
    finally:
        os.close(descriptor)


async def _readable(descriptor: int) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, ended.set)
    try:
        await asyncio.wait_for(ended.wait(), WAIT_S)
    finally:
        loop.remove_reader(descriptor)


@dataclass(slots=True)
class Stamps(asyncio.Protocol):
    """One streamed request on a connection of its own: the instant of every read that brought a token."""

    request: bytes
    done: "asyncio.Future[None]"
    reads_ns: list[int] = field(default_factory=list)
    tail: bytes = b""
    transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        if b'"text":' in data:
            self.reads_ns.append(now)
        self.tail = (self.tail + data)[-64:]
        if b"[DONE]" in self.tail and self.transport is not None:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if b"[DONE]" in self.tail:
            self.done.set_result(None)
        else:
            self.done.set_exception(ConnectionError("the stream was cut off"))


def long_prompts(count: int, shared: int, own: int, seed: int) -> list[list[int]]:
    """Prompts of token ids with a common beginning."""
    generator = np.random.default_rng(seed)
    prefix = generator.integers(0, 100_000, shared).tolist()
    return [prefix + generator.integers(0, 100_000, own).tolist() for _ in range(count)]


async def load(port: int, prompts: Sequence[list[int]], max_tokens: int) -> list[list[int]]:
    """Send all prompts at once and wait for the end; returns the read stamps (ns) of each stream."""
    loop = asyncio.get_running_loop()
    streams = []
    for prompt in prompts:
        body = orjson.dumps(completion_fields(prompt, max_tokens) | {"stream": True})
        head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
        streams.append(Stamps(head.encode() + body, loop.create_future()))
    for stream in streams:
        await loop.create_connection(lambda stream=stream: stream, "127.0.0.1", port)  # type: ignore[misc]
    await asyncio.wait_for(asyncio.gather(*(stream.done for stream in streams)), WAIT_S)
    return [stream.reads_ns for stream in streams]
