"""A controller for tests: speaks the runner protocol on a socket of its own, remembers everything, obeys the test."""

import hashlib
import json
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from service.contract.lease import Directive, EnrolRequest, Heartbeat, Lease, LeaseRequest, Release, Renewal
from service.contract.upload import Result

LIMIT_S = 90.0


class Refusal(Exception):
    """An answer that is a problem."""

    def __init__(self, status: int, code: str, **members: Any) -> None:
        self.status = status
        self.body = {"type": "about:blank", "status": status, "code": code, "detail": f"fake: {code}", **members}
        super().__init__(code)


@dataclass
class Memory:
    """What was said, and what to answer. Guarded by ``changed``."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    waiting: list[Lease] = field(default_factory=list)
    given: dict[str, Lease] = field(default_factory=dict)
    lease_requests: list[LeaseRequest] = field(default_factory=list)
    heartbeats: list[Heartbeat] = field(default_factory=list)
    enrolments: list[EnrolRequest] = field(default_factory=list)
    renewals: list[tuple[str, Renewal]] = field(default_factory=list)
    logs: dict[str, bytes] = field(default_factory=dict)
    artifacts: dict[tuple[str, str], bytes] = field(default_factory=dict)
    results: dict[str, Result] = field(default_factory=dict)
    releases: dict[str, Release] = field(default_factory=dict)
    order: list[tuple[str, str]] = field(default_factory=list)
    """(what, attempt id) of every accepted call about an attempt."""
    tokens: set[str] = field(default_factory=set)
    directive: Directive = Directive.CONTINUE
    runner_directive: Directive = Directive.CONTINUE
    lost: set[str] = field(default_factory=set)
    failing: dict[str, Refusal] = field(default_factory=dict)
    """Kind of call → how it is refused."""
    lose_answers: int = 0
    """So many leases are given whose answer never arrives."""
    withhold_answers: int = 0
    """So many leases are given whose answer does not leave."""
    closing: bool = False


class FakeController:
    """Use as a context manager; ``memory`` is read and written under ``memory.changed``, best through the methods."""

    def __init__(self, port: int = 0) -> None:
        self.memory = Memory()
        memory = self.memory

        class Bound(_Handler):
            pass

        Bound.memory = memory
        self._server = _Server(("127.0.0.1", port), Bound)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> "FakeController":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self.memory.changed:
            self.memory.closing = True
            self.memory.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(LIMIT_S)

    def offer(self, *leases: Lease) -> None:
        """Let the runner have these leases, in this order."""
        with self.memory.changed:
            self.memory.waiting.extend(leases)
            self.memory.changed.notify_all()

    def change(self, act: Callable[[Memory], None]) -> None:
        with self.memory.changed:
            act(self.memory)
            self.memory.changed.notify_all()

    def wait_until(self, happens: Callable[[Memory], object], what: str) -> None:
        """Wait for something that was said; fails after a bound that only a broken runner reaches."""
        with self.memory.changed:
            came = self.memory.changed.wait_for(lambda: bool(happens(self.memory)), LIMIT_S)
            assert came, f"waited {LIMIT_S} s for {what}; {self.memory.order[-20:]} {self.memory.renewals[-3:]}"

    def result_of(self, lease: Lease) -> Result:
        self.wait_until(lambda memory: lease.attempt_id in memory.results, f"the result of {lease.attempt_id}")
        return self.memory.results[lease.attempt_id]


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A runner that was killed broke its connection off: say nothing of that."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    memory: Memory
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_PATCH(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _serve(self) -> None:
        self.close_connection = False
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size)
        if len(body) < size:  # the runner died in the middle
            self.close_connection = True
            return
        url = urlsplit(self.path)
        words = url.path.removeprefix("/api/v1/agent/").split("/")
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        try:
            answer = self._answer(words, query, body)
        except Refusal as refusal:
            self._send(refusal.status, refusal.body)
            return
        if answer is _NO_ANSWER:
            self.close_connection = True
            return
        self._send(204 if answer is None else 200, answer)

    def _send(self, status: int, answer: Any) -> None:
        data = b"" if answer is None else json.dumps(answer).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            self.wfile.flush()
        except OSError:
            self.close_connection = True

    def _answer(self, words: list[str], query: dict[str, str], body: bytes) -> Any:
        memory = self.memory
        kind = words[-1] if words[0] != "attempts" else words[2]
        with memory.changed:
            token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
            memory.tokens.add(token)
            memory.changed.notify_all()
            if memory.closing:
                return _NO_ANSWER
            if kind in memory.failing:
                raise memory.failing[kind]
            if words[0] == "attempts":
                lease = next((one for one in memory.given.values() if one.attempt_id == words[1]), None)
                if lease is None or token != lease.token:
                    raise Refusal(401, "token_invalid")
                return self._about_attempt(lease, kind, words, query, body)
            if kind == "enrol":
                memory.enrolments.append(EnrolRequest.model_validate_json(body))
                return {"runner_id": "run_0000000000000001", "token": "bkr_fake"}
            if kind == "heartbeat":
                memory.heartbeats.append(Heartbeat.model_validate_json(body))
                return {"directive": memory.runner_directive, "interval_s": 0.2}
            return self._lease(LeaseRequest.model_validate_json(body))

    def _lease(self, request: LeaseRequest) -> Any:
        memory = self.memory
        memory.lease_requests.append(request)
        memory.changed.wait_for(
            lambda: request.request_id in memory.given or memory.waiting or memory.closing, min(request.wait_s, 5)
        )
        if request.request_id not in memory.given:
            if not memory.waiting or memory.closing:
                return _NO_ANSWER if memory.closing else None
            memory.given[request.request_id] = memory.waiting.pop(0).model_copy(update={"slot": request.slot})
            memory.changed.notify_all()
            if memory.lose_answers:
                memory.lose_answers -= 1
                return _NO_ANSWER
            if memory.withhold_answers:
                memory.withhold_answers -= 1
                memory.changed.wait_for(lambda: memory.closing, LIMIT_S)
                return _NO_ANSWER
        return memory.given[request.request_id].model_dump(mode="json")

    def _about_attempt(self, lease: Lease, kind: str, words: list[str], query: dict[str, str], body: bytes) -> Any:
        memory, attempt_id = self.memory, lease.attempt_id
        if attempt_id in memory.lost:
            raise Refusal(409, "lease_lost")
        memory.order.append((kind, attempt_id))
        if kind == "renew":
            memory.renewals.append((attempt_id, Renewal.model_validate_json(body)))
            return {"directive": memory.directive}
        if kind == "log":
            stored = memory.logs.get(attempt_id, b"")
            if int(query["offset"]) != len(stored):
                raise Refusal(409, "offset_mismatch", size_bytes=len(stored))
            memory.logs[attempt_id] = stored + body
            return {"size_bytes": len(stored) + len(body)}
        if kind == "artifacts":
            assert hashlib.sha256(body).hexdigest() == words[3]
            memory.artifacts[(attempt_id, query["name"])] = body
            return {}
        if kind == "release":
            memory.releases[attempt_id] = Release.model_validate_json(body)
            return {}
        result = Result.model_validate_json(body)
        replay = memory.results.get(attempt_id) == result
        memory.results[attempt_id] = result
        return {"accepted": True, "replay": replay, "launch_id": "lau_0000000000000001"}


_NO_ANSWER = object()
