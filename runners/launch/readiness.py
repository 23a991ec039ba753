"""Proof that the server that answers is the one that was started, and that it generates.

In this order: the process lives · GET /health is 200 · GET /v1/models lists just this attempt's nonce · GET /version is
the build's · one streamed completion of at least two tokens comes with token ids. /health alone lies: it is 200 on
engines that can't generate, and on somebody else's server.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import httpx

from runners.launch.launchable import Launchable, LaunchError, argument
from runners.launch.process import ServerProcess
from service.contract.failures import FailureClass

POLL_S = 0.1
CALL_S = 10.0
PROOF_TOKENS = 4
DEFAULT_BLOCK_SIZE = 16
BLOCK_SIZE = re.compile(r'^vllm:cache_config_info\{[^}]*\bblock_size="(\d+)"', re.MULTILINE)


class ForeignServer(LaunchError):
    """Somebody else's server answers on the port."""


@dataclass(frozen=True)
class Proof:
    """What the server said of itself. ``block_size`` is in tokens."""

    version: str
    block_size: int


async def prove(
    server: ServerProcess,
    launchable: Launchable,
    *,
    nonce: str,
    port: int,
    prompt: list[int],
    on_progress: Callable[[str], None],
) -> Proof:
    """Return once the server is proven; wait as long as its process lives (the caller bounds the time).

    ``prompt``: a few token ids that the model knows. ``on_progress`` gets what the server's log says about its start.
    Raises LaunchError server_start: the process ended, another version, no tokens, or (ForeignServer) another server
    answers on the port.
    """
    proving = asyncio.ensure_future(_prove(server, launchable, nonce, port, prompt, on_progress))
    ended = asyncio.ensure_future(server.ended())
    waits: set[asyncio.Future[Any]] = {proving, ended}
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():  # then whatever answers on the port is not ours
            raise _unproven("the server ended before it was ready")
        return await proving
    finally:
        for task in waits:
            task.cancel()
        await asyncio.wait(waits)


async def _prove(
    server: ServerProcess,
    launchable: Launchable,
    nonce: str,
    port: int,
    prompt: list[int],
    on_progress: Callable[[str], None],
) -> Proof:
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", timeout=CALL_S, trust_env=False, limits=httpx.Limits(max_connections=1)
    ) as client:
        await _until_healthy(server, launchable, client, on_progress)
        await _check_models(client, nonce, port)
        version = await _check_version(client, launchable)
        on_progress("generating a first completion")
        await _check_completion(client, nonce, prompt)
        return Proof(version, await _block_size(client, launchable))


async def _until_healthy(
    server: ServerProcess, launchable: Launchable, client: httpx.AsyncClient, on_progress: Callable[[str], None]
) -> None:
    lines = _LogReader(server)
    while True:
        try:
            if (await client.get("/health")).status_code == 200:
                return
        except httpx.TransportError:
            pass
        for line in lines.new():
            if says := launchable.startup_step(line):
                on_progress(says)
        await asyncio.sleep(POLL_S)


class _LogReader:
    """Reads the lines that were added to the server's log since the last look."""

    def __init__(self, server: ServerProcess) -> None:
        self._path = server.log
        self._offset = 0

    def new(self) -> list[str]:
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read(2**20)
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.decode(errors="replace").splitlines()


async def _check_models(client: httpx.AsyncClient, nonce: str, port: int) -> None:
    answer = await _get(client, "/v1/models")
    try:
        names = [model["id"] for model in answer["data"]]
    except (KeyError, TypeError) as error:
        raise _unproven(f"/v1/models answers {str(answer)[:200]}") from error
    if names != [nonce]:
        served = ", ".join(map(str, names)) or "nothing"
        message = f"somebody else's server answers on port {port}: it serves {served}, not {nonce}"
        raise ForeignServer(FailureClass.SERVER_START, message)


async def _check_version(client: httpx.AsyncClient, launchable: Launchable) -> str:
    answer = await _get(client, "/version")
    version = answer.get("version") if isinstance(answer, dict) else None
    if not isinstance(version, str) or not launchable.matches_version(version):
        raise _unproven(f"the server says that its version is {version!r}, but the build is {launchable.version}")
    return version


async def _get(client: httpx.AsyncClient, path: str) -> Any:
    try:
        response = await client.get(path)
        response.raise_for_status()
        return response.json()
    except (httpx.HTTPError, ValueError) as error:
        raise _unproven(f"GET {path}: {error or type(error).__name__}") from error


async def _check_completion(client: httpx.AsyncClient, nonce: str, prompt: list[int]) -> None:
    body = {
        "model": nonce,
        "prompt": prompt,
        "max_tokens": PROOF_TOKENS,
        "min_tokens": PROOF_TOKENS,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "return_token_ids": True,
    }
    tokens = 0
    try:
        # The first completion may compile kernels; the time for the whole step bounds it.
        async with client.stream("POST", "/v1/completions", json=body, timeout=None) as response:
            if response.status_code != 200:
                text = (await response.aread()).decode(errors="replace")[:500]
                raise _unproven(f"the first completion was answered with {response.status_code}: {text}")
            async for event in _events(response):
                if "error" in event:
                    raise _unproven(f"the first completion failed: {event['error']}")
                tokens += sum(len(choice.get("token_ids") or []) for choice in event.get("choices", []))
    except httpx.HTTPError as error:
        raise _unproven(f"the first completion broke off: {error or type(error).__name__}") from error
    if tokens < 2:
        raise _unproven(f"the first completion brought {tokens} token ids, at least 2 are needed")


async def _events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in response.aiter_lines():
        if not line.startswith("data:") or line.strip() == "data: [DONE]":
            continue
        try:
            event = json.loads(line[5:])
        except ValueError as error:
            raise _unproven(f"the first completion is not JSON: {line[:200]}") from error
        if isinstance(event, dict):
            yield event


async def _block_size(client: httpx.AsyncClient, launchable: Launchable) -> int:
    """Return the server's own figure, or the argument's, or vLLM's default."""
    try:
        text = (await client.get("/metrics")).text
    except httpx.HTTPError as error:
        raise _unproven(f"GET /metrics: {error or type(error).__name__}") from error
    if found := BLOCK_SIZE.search(text):
        return int(found[1])
    given = argument(launchable.args, "--block-size")
    return int(given) if given is not None and given.isdecimal() and int(given) > 0 else DEFAULT_BLOCK_SIZE


def _unproven(message: str) -> LaunchError:
    return LaunchError(FailureClass.SERVER_START, message)
