"""Each fault does what it says, to the requests it is meant for and to no other."""

import signal
import socket
import time

import httpx
import orjson
import pytest

from images.simulated.profile import FAULT_KINDS
from tests.images.simulated.conftest import Engines
from tests.images.simulated.engine_process import WAIT_S, EngineProcess, completion_fields

USAGE = {"stream_options": {"include_usage": True}, "return_token_ids": True}


def _second(kind: str, more: str = "") -> str:
    return f"[faults.{kind}]\nat_request = 2\n{more}\n"


def _chunks(events: list[str]) -> list[dict[str, object]]:
    return [orjson.loads(event) for event in events if event != "[DONE]"]


def _choices(events: list[str]) -> list[dict[str, object]]:
    return [choices[0] for chunk in _chunks(events) if (choices := chunk.get("choices")) and isinstance(choices, list)]


def _healthy(engine: EngineProcess) -> None:
    events = engine.stream("a", 6, **USAGE)
    assert [len(str(choice["text"])) for choice in _choices(events)] == [1] * 6
    assert _chunks(events)[-1]["usage"] == {"prompt_tokens": 1, "total_tokens": 7, "completion_tokens": 6}


def _struck(engine: EngineProcess) -> list[str]:
    """The events of the second request; the first and the third are sound."""
    _healthy(engine)
    events = engine.stream("a", 6, **USAGE)
    _healthy(engine)
    return events


def test_in_band_error(engines: Engines) -> None:
    events = _struck(engines.start(extra=_second("in_band_error", "after_tokens = 2")))
    assert events[-1] == "[DONE]"
    assert len(_choices(events)) == 2
    assert orjson.loads(events[-2])["error"]["code"] == 500


@pytest.mark.parametrize("kind", ["truncated_close", "reset"])
def test_a_stream_that_breaks(engines: Engines, kind: str) -> None:
    engine = engines.start(extra=_second(kind, "after_tokens = 2"))
    _healthy(engine)
    body = orjson.dumps(completion_fields("a", 6) | {"stream": True})
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
    received, reset = b"", False
    with socket.create_connection(("127.0.0.1", engine.port), WAIT_S) as connection:
        connection.sendall(head + body)
        try:
            while data := connection.recv(65536):
                received += data
        except ConnectionResetError:
            reset = True
    assert reset == (kind == "reset")
    assert received.count(b'"text"') == 2
    assert not received.endswith(b"0\r\n\r\n")
    _healthy(engine)
    assert engine.metric("request_success_total", 'finished_reason="abort"') == 1


def test_short_output(engines: Engines) -> None:
    choices = _choices(_struck(engines.start(extra=_second("short_output"))))
    assert len(choices) == 4
    assert (choices[-1]["finish_reason"], choices[-1]["token_ids"], choices[-1]["text"]) == ("stop", [257], "")


def test_abort(engines: Engines) -> None:
    choices = _choices(_struck(engines.start(extra=_second("abort"))))
    assert len(choices) == 3
    assert choices[-1]["finish_reason"] == "abort"


def test_multi_token_chunks(engines: Engines) -> None:
    choices = _choices(_struck(engines.start(extra=_second("multi_token_chunks", "size = 4"))))
    assert [len(str(choice["text"])) for choice in choices] == [4, 2]


def test_coalesced(engines: Engines) -> None:
    engine = engines.start(extra="[faults.coalesced]\nevery = 1\nsize = 4\n")
    assert len(_choices(engine.stream("a", 6))) == 6
    with (
        httpx.Client(timeout=WAIT_S) as client,
        client.stream("POST", f"{engine.url}/v1/completions", json=completion_fields("a", 6) | {"stream": True}) as got,
    ):
        first = next(got.iter_raw())
    assert first.count(b'"text"') == 4


def test_count_mismatch(engines: Engines) -> None:
    events = _struck(engines.start(extra=_second("count_mismatch")))
    assert len(_choices(events)) == 6
    assert _chunks(events)[-1]["usage"] == {"prompt_tokens": 1, "total_tokens": 8, "completion_tokens": 7}


def test_no_usage(engines: Engines) -> None:
    events = _struck(engines.start(extra=_second("no_usage")))
    assert len(_chunks(events)) == len(_choices(events)) == 6
    assert events[-1] == "[DONE]"


def test_empty_text(engines: Engines) -> None:
    choices = _choices(_struck(engines.start(extra=_second("empty_text"))))
    assert [choice["text"] for choice in choices] == [""] * 6
    assert all(choice["token_ids"] for choice in choices)


def test_stall_holds_the_tokens_back_and_loses_none(engines: Engines) -> None:
    engine = engines.start(extra=_second("stall", "seconds = 0.5\nafter_tokens = 2"))
    begun = time.monotonic()
    assert len(_choices(_struck(engine))) == 6
    assert time.monotonic() - begun >= 0.5


def test_every_strikes_each_nth_request(engines: Engines) -> None:
    engine = engines.start(extra="[faults.abort]\nevery = 3\n")
    reasons = [engine.complete("a", 4).json()["choices"][0]["finish_reason"] for _ in range(7)]
    assert reasons == ["length", "length", "abort"] * 2 + ["length"]


def test_crash_at_request_n(engines: Engines) -> None:
    engine = engines.start(extra=_second("crash_at_request_n"))
    _healthy(engine)
    with pytest.raises(httpx.RemoteProtocolError):
        engine.stream("a", 6)
    assert engine.process.wait(WAIT_S) == -signal.SIGKILL


def test_faults_of_whole_answers(engines: Engines) -> None:
    engine = engines.start(extra=_second("in_band_error") + "[faults.stall]\nat_request = 1\nseconds = 0.05\n")
    assert engine.complete("a", 6).json()["usage"]["completion_tokens"] == 6
    assert engine.complete("a", 6).status_code == 500


def test_every_kind_of_fault_is_tested_here() -> None:
    tested = [name.removeprefix("test_") for name in globals()] + ["truncated_close", "reset"]
    assert [kind for kind in FAULT_KINDS if not any(name.startswith(kind) for name in tested)] == []
