"""The typed client of the runner protocol: one method per endpoint, one place that knows when to try again.

Transient trouble (no connection, a timeout, 429, 502, 503, 504, 507) is tried again with growing, jittered pauses that
honour Retry-After; every other answer becomes an exception of service.contract.errors by its code.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx

from runners import AGENT_VERSION
from service.contract import errors
from service.contract.builds import Wire
from service.contract.clock import Clock
from service.contract.lease import (
    Enrolment,
    EnrolRequest,
    Heartbeat,
    HeartbeatAnswer,
    Lease,
    LeaseRequest,
    LogAnswer,
    Release,
    Renewal,
    RenewalAnswer,
)
from service.contract.upload import ArtifactRef, Result, ResultAnswer

PREFIX = "/api/v1/agent"
TRANSIENT = frozenset({429, 502, 503, 504, 507})
CHUNK_BYTES = 2**20
CALL_S = 30.0

Answer = TypeVar("Answer", bound=Wire)
T = TypeVar("T")


class Unreachable(Exception):
    """The controller could not be asked just now; ``retry_after_s`` is its own wish, if it had one."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        self.message = message
        self.retry_after_s = retry_after_s
        super().__init__(message)


@dataclass(frozen=True)
class Retry:
    """Pauses between tries: ``first_s``, doubled each time up to ``cap_s``, each shortened by up to half at random."""

    first_s: float = 0.5
    cap_s: float = 30.0

    def pause_s(self, failures: int, wish_s: float | None = None) -> float:
        """Return how long to wait after so many failures in a row (from 1); at least what the controller wished."""
        backed_off = min(self.cap_s, self.first_s * 2.0 ** min(failures - 1, 30)) * random.uniform(0.5, 1.0)
        return max(backed_off, min(wish_s or 0.0, 10 * self.cap_s))


class Controller:
    """The controller as a runner sees it. Every call may be repeated; ``on_trouble`` gets a line per failed try."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        clock: Clock,
        retry: Retry | None = None,
        on_trouble: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._token = token
        self._clock = clock
        self._retry = retry or Retry()
        self._on_trouble = on_trouble
        self._http = httpx.AsyncClient(base_url=url, timeout=CALL_S, trust_env=False, headers=_headers())

    async def aclose(self) -> None:
        await self._http.aclose()

    async def enrol(self, request: EnrolRequest) -> Enrolment:
        """Trade the enrolment token (this client's token) for a runner's own; tried for 5 s."""
        return await self._post("/enrol", request, Enrolment, give_up_s=5)

    async def heartbeat(self, beat: Heartbeat, give_up_s: float | None = None) -> HeartbeatAnswer:
        return await self._post("/heartbeat", beat, HeartbeatAnswer, give_up_s=give_up_s)

    async def lease(self, request: LeaseRequest, give_up_s: float | None = None) -> Lease | None:
        """Ask for work, held by the controller up to ``request.wait_s``; None when there was none."""

        async def call() -> Lease | None:
            response = await self._send("POST", "/lease", request, timeout=request.wait_s + CALL_S)
            return None if response.status_code == 204 else parse(Lease, response)

        return await self._trying(call, give_up_s)

    async def append_log(self, lease: Lease, offset: int, data: bytes) -> LogAnswer:
        """Append to the attempt's log; raises errors.OffsetMismatch whose details say ``size_bytes``."""
        path = f"/attempts/{lease.attempt_id}/log?fence={lease.fence}&offset={offset}"
        response = await self._send("PATCH", path, data, token=lease.token)
        return parse(LogAnswer, response)

    async def put_artifact(self, lease: Lease, ref: ArtifactRef, path: Path) -> None:
        """Send a file, streamed; sending the same again is a replay."""
        query = f"fence={lease.fence}&name={ref.name}"

        async def call() -> None:
            headers = {"Content-Length": str(ref.size_bytes), "Content-Type": "application/octet-stream"}
            await self._send(
                "PUT",
                f"/attempts/{lease.attempt_id}/artifacts/{ref.sha256}?{query}",
                _chunks(path, ref.size_bytes),
                token=lease.token,
                headers=headers,
                timeout=10 * CALL_S,
            )

        await self._trying(call, None)

    async def put_result(self, lease: Lease, result: Result) -> ResultAnswer:
        """Hand in the attempt's result; the same bytes again are a replay."""

        async def call() -> ResultAnswer:
            path = f"/attempts/{lease.attempt_id}/result"
            response = await self._send("PUT", path, result, token=lease.token, timeout=10 * CALL_S)
            return parse(ResultAnswer, response)

        return await self._trying(call, None)

    async def release(self, lease: Lease, release: Release, give_up_s: float | None = None) -> None:
        """Give the attempt back."""

        async def call() -> None:
            await self._send("POST", f"/attempts/{lease.attempt_id}/release", release, token=lease.token)

        await self._trying(call, give_up_s)

    async def _post(self, path: str, body: Wire, answer: type[Answer], give_up_s: float | None) -> Answer:
        async def call() -> Answer:
            return parse(answer, await self._send("POST", path, body))

        return await self._trying(call, give_up_s)

    async def _trying(self, call: Callable[[], Awaitable[T]], give_up_s: float | None) -> T:
        """Repeat ``call`` while it is Unreachable, until ``give_up_s`` have passed (None: until cancelled)."""
        began_s = self._clock.monotonic_s()
        failures = 0
        while True:
            try:
                return await call()
            except Unreachable as trouble:
                failures += 1
                pause_s = self._retry.pause_s(failures, trouble.retry_after_s)
                if give_up_s is not None and self._clock.monotonic_s() - began_s + pause_s > give_up_s:
                    raise
                self._on_trouble(f"{trouble.message}; trying again in {pause_s:.1f} s (try {failures})")
                await asyncio.sleep(pause_s)

    async def _send(
        self,
        method: str,
        path: str,
        body: "Wire | bytes | AsyncIterator[bytes]",
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = CALL_S,
    ) -> httpx.Response:
        content = body.model_dump_json().encode() if isinstance(body, Wire) else body
        kind = {"Content-Type": "application/json"} if isinstance(body, Wire) else {}
        authorization = {"Authorization": f"Bearer {token or self._token}"}
        try:
            response = await self._http.request(
                method,
                PREFIX + path,
                content=content,
                headers={**kind, **(headers or {}), **authorization},
                timeout=httpx.Timeout(timeout, connect=10),
            )
        except httpx.LocalProtocolError:
            raise  # ours: trying again would not help
        except httpx.TransportError as error:
            raise unreachable(self._http.base_url, error) from error
        return checked(response)


class RenewalClient:
    """A small blocking client for the renewal thread: one try per call."""

    def __init__(self, url: str, lease: Lease, timeout_s: float = 10.0) -> None:
        self._path = f"{PREFIX}/attempts/{lease.attempt_id}/renew"
        headers = {**_headers(), "Authorization": f"Bearer {lease.token}", "Content-Type": "application/json"}
        self._http = httpx.Client(base_url=url, timeout=timeout_s, trust_env=False, headers=headers)

    def renew(self, renewal: Renewal) -> RenewalAnswer:
        """Renew once. Raises Unreachable when it may work later, errors.LeaseLost when it won't."""
        try:
            response = self._http.post(self._path, content=renewal.model_dump_json().encode())
        except httpx.TransportError as error:
            raise unreachable(self._http.base_url, error) from error
        return parse(RenewalAnswer, checked(response))

    def close(self) -> None:
        self._http.close()


def checked(response: httpx.Response) -> httpx.Response:
    """Return a success as it is. Raises Unreachable for a transient answer, a BackslideError for every other."""
    if response.is_success:
        return response
    body = _problem(response)
    if response.status_code in TRANSIENT or body.get("retryable") is True:
        text = body.get("detail") or response.reason_phrase
        raise Unreachable(f"the controller answers {response.status_code} ({text})", _retry_after_s(response))
    kind = _error_classes().get(str(body.get("code")), errors.BackslideError)
    known = {"type", "title", "status", "detail", "code", "retryable"}
    details = {str(key): value for key, value in body.items() if key not in known and key != "message"}
    default = f"{response.request.method} {response.request.url.path} was answered with {response.status_code}"
    raise kind(str(body.get("detail") or default), **details)


def parse(kind: type[Answer], response: httpx.Response) -> Answer:
    """Return the answer's body as a message. Raises errors.ProtocolUnsupported when it is none of that kind."""
    try:
        return kind.model_validate_json(response.content)
    except ValueError as error:
        path = response.request.url.path
        raise errors.ProtocolUnsupported(f"the answer to {path} is not understood: {error}") from error


def unreachable(url: httpx.URL, error: Exception) -> Unreachable:
    """Return the error for a call that got no answer."""
    return Unreachable(f"no answer from {str(url).rstrip('/')}: {str(error) or type(error).__name__}")


def _headers() -> dict[str, str]:
    return {"User-Agent": f"backslide-runner/{AGENT_VERSION}", "Accept": "application/json"}


def _problem(response: httpx.Response) -> dict[str, Any]:
    try:
        body = response.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _retry_after_s(response: httpx.Response) -> float | None:
    try:
        return max(0.0, float(response.headers["Retry-After"]))
    except (KeyError, ValueError):
        return None


def _error_classes() -> dict[str, type[errors.BackslideError]]:
    """Return every class of the tree by its code, the root for its own."""
    found: dict[str, type[errors.BackslideError]] = {}
    todo: list[type[errors.BackslideError]] = [errors.BackslideError]
    while todo:
        kind = todo.pop()
        found.setdefault(kind.code, kind)
        todo.extend(kind.__subclasses__())
    return found


async def _chunks(path: Path, size_bytes: int) -> AsyncIterator[bytes]:
    """Yield the first ``size_bytes`` of a file; pieces are small enough to be read between two turns of the loop."""
    left = size_bytes
    with path.open("rb") as file:
        while left and (chunk := file.read(min(CHUNK_BYTES, left))):
            left -= len(chunk)
            yield chunk
