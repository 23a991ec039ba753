"""What a server has to prove before it is measured, against servers that lie."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from runners.clock import SystemClock
from runners.launch import readiness
from runners.launch.launchable import Launchable, LaunchError, argument, last_line
from runners.launch.process import ServerProcess
from service.contract.failures import FailureClass

NONCE = "nonce-1"
Answers = dict[str, Any]


class _Stub(BaseHTTPRequestHandler):
    answers: Answers
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._send(self.answers.get(self.path))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._send(self.answers.get(self.path))

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _send(self, answer: Any) -> None:
        data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
        self.send_response(404 if answer is None else 200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)


def _stream(*events: dict[str, Any]) -> str:
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"


def _token(*ids: int) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": "", "token_ids": list(ids)}]}


@pytest.fixture
def healthy() -> Answers:
    return {
        "/health": "",
        "/v1/models": {"data": [{"id": NONCE}]},
        "/version": {"version": "0.18.0"},
        "/metrics": 'vllm:cache_config_info{block_size="128",engine="0"} 1.0\n',
        "/v1/completions": _stream(_token(5), _token(6), {"choices": [], "usage": {}}),
    }


@pytest.fixture
def port(healthy: Answers) -> Iterator[int]:
    class Bound(_Stub):
        answers = healthy

    server = ThreadingHTTPServer(("127.0.0.1", 0), Bound)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield int(server.server_address[1])
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def prove(port: int, tmp_path: Path) -> Callable[..., readiness.Proof]:
    """Proves a process that lives (or has ended) against the stub on the port."""

    def run(*program: str, args: tuple[str, ...] = ()) -> readiness.Proof:
        launchable = Launchable(program or ("sleep", "600"), args, {}, "0.18.0", lambda v: v == "0.18.0", last_line)

        async def work() -> readiness.Proof:
            server = await ServerProcess.start(
                launchable.program,
                {"PATH": "/usr/bin:/bin"},
                folder=tmp_path,
                log=tmp_path / "server.log",
                attempt_id="att_1",
                clock=SystemClock(),
            )
            try:
                return await readiness.prove(
                    server, launchable, nonce=NONCE, port=port, prompt=[1, 2], on_progress=lambda line: None
                )
            finally:
                await server.stop(0)

        return asyncio.run(work())

    return run


def test_a_server_that_proves_everything_is_believed(prove: Callable[..., readiness.Proof]) -> None:
    assert prove() == readiness.Proof("0.18.0", 128)


@pytest.mark.parametrize(("args", "block_size"), [((), 16), (("--block-size", "32"), 32), (("--block-size=64",), 64)])
def test_the_block_size_is_the_arguments_when_the_server_does_not_tell(
    prove: Callable[..., readiness.Proof], healthy: Answers, args: tuple[str, ...], block_size: int
) -> None:
    healthy["/metrics"] = "vllm:num_requests_running 0\n"
    assert prove(args=args).block_size == block_size


@pytest.mark.parametrize(
    ("path", "answer", "says"),
    [
        ("/v1/models", {"data": [{"id": "other"}]}, "somebody else's server"),
        ("/v1/models", {"data": [{"id": NONCE}, {"id": "other"}]}, "somebody else's server"),
        ("/v1/models", {"data": []}, "it serves nothing"),
        ("/v1/models", ["?"], "/v1/models answers"),
        ("/v1/models", "<html>", "/v1/models"),
        ("/version", {"version": "0.18.1"}, "'0.18.1'"),
        ("/version", [], "None"),
        ("/version", None, "404"),
        ("/v1/completions", _stream(_token(5)), "1 token ids"),
        ("/v1/completions", _stream({"choices": [{"text": "ab"}]}), "0 token ids"),
        ("/v1/completions", _stream(_token(5), {"error": {"message": "engine dead"}}), "engine dead"),
        ("/v1/completions", "data: {torn\n\n", "is not JSON"),
        ("/v1/completions", None, "404"),
    ],
)
def test_a_server_that_does_not_prove_itself_is_refused(
    prove: Callable[..., readiness.Proof], healthy: Answers, path: str, answer: Any, says: str
) -> None:
    healthy[path] = answer
    with pytest.raises(LaunchError) as caught:
        prove()
    assert caught.value.failure_class is FailureClass.SERVER_START
    assert says in caught.value.message


def test_a_process_that_ended_proves_nothing_though_somebody_answers_on_its_port(
    prove: Callable[..., readiness.Proof], healthy: Answers
) -> None:
    healthy["/health"] = None
    with pytest.raises(LaunchError, match="ended before it was ready"):
        prove("false")


@pytest.mark.parametrize(
    ("args", "value"), [(["--a", "1", "--a", "2"], "2"), (["--a=3"], "3"), (["--a"], None), (["--ab", "1"], None)]
)
def test_an_argument_is_found_in_both_spellings(args: list[str], value: str | None) -> None:
    assert argument(args, "--a") == value
