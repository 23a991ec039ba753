"""The endpoints, over a real socket, and the counters against what was served."""

import socket

import httpx
import orjson
import pytest

from tests.images.simulated.conftest import Engines
from tests.images.simulated.engine_process import MODEL, WAIT_S, completion_fields


def test_a_stream_is_vllms_event_by_event(engines: Engines) -> None:
    engine = engines.start("--enable-prompt-tokens-details")
    options = {"include_usage": True, "continuous_usage_stats": True}
    prompt = list(range(40))
    engine.stream(prompt, 1)
    *chunks, usage, done = engine.stream(prompt, 5, stream_options=options, return_token_ids=True)
    assert done == "[DONE]"
    parsed = [orjson.loads(chunk) for chunk in chunks]
    assert [chunk["choices"][0]["finish_reason"] for chunk in parsed] == [None] * 4 + ["length"]
    assert [chunk["usage"]["completion_tokens"] for chunk in parsed] == [1, 2, 3, 4, 5]
    ids = [token for chunk in parsed for token in chunk["choices"][0]["token_ids"]]
    text = "".join(chunk["choices"][0]["text"] for chunk in parsed)
    assert bytes(ids).decode() == text
    assert len(text) == 5
    assert {(chunk["object"], chunk["model"], chunk["id"]) for chunk in parsed} == {
        ("text_completion", MODEL, parsed[0]["id"])
    }
    last = orjson.loads(usage)
    assert last["choices"] == []
    assert last["usage"] == {
        "prompt_tokens": 40,
        "total_tokens": 45,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 32},
    }
    whole = engine.complete(prompt, 5, return_token_ids=True).json()
    assert (whole["choices"][0]["text"], whole["choices"][0]["token_ids"]) == (text, ids)


def test_without_options_a_stream_has_no_ids_and_no_usage(engines: Engines) -> None:
    *chunks, done = engines.start().stream("hello", 3)
    assert done == "[DONE]"
    assert len(chunks) == 3
    assert all(orjson.loads(chunk)["usage"] is None for chunk in chunks)
    assert all(orjson.loads(chunk)["choices"][0]["token_ids"] is None for chunk in chunks)


def test_a_stop_string_is_never_shown_in_part(engines: Engines) -> None:
    engine = engines.start()
    text = engine.complete("story", 60).json()["choices"][0]["text"]
    stop = text[40:44]
    *chunks, _ = engine.stream("story", 60, stop=stop)
    choices = [orjson.loads(chunk)["choices"][0] for chunk in chunks]
    assert "".join(choice["text"] for choice in choices) == text[: text.index(stop)]
    assert (choices[-1]["finish_reason"], choices[-1]["stop_reason"]) == ("stop", stop)


def test_the_counters_agree_with_what_was_served(engines: Engines) -> None:
    engine = engines.start("--enable-prompt-tokens-details")
    prompts = [list(range(100)), [*range(100), *range(50)], list(range(100))]
    cached = []
    for prompt in prompts:
        usage = engine.complete(prompt, 7).json()["usage"]
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (len(prompt), 7)
        details = usage["prompt_tokens_details"]
        cached.append(details["cached_tokens"] if details else 0)
    assert cached == [0, 96, 96]
    assert engine.metric("prefix_cache_queries_total") == engine.metric("prompt_tokens_total") == 350
    assert engine.metric("prefix_cache_hits_total") == 192
    assert engine.metric("generation_tokens_total") == 21
    assert engine.metric("request_success_total", 'finished_reason="length"') == 3
    assert engine.metric("request_success_total", 'finished_reason="stop"') == 0
    assert engine.metric("num_preemptions_total") == engine.metric("num_requests_running") == 0
    for name in ("time_to_first_token", "request_time_per_output_token", "e2e_request_latency"):
        assert engine.metric(f"{name}_seconds_count") == engine.metric(f"{name}_seconds_bucket", 'le="+Inf"') == 3
    assert engine.metric("inter_token_latency_seconds_count") == 18
    # Three decodes of at least six 1 ms steps, in seconds.
    assert engine.metric("inter_token_latency_seconds_sum") >= 0.018
    assert f'{{engine="0",model_name="{MODEL}"}}' in httpx.get(f"{engine.url}/metrics").text


def test_a_client_that_goes_away_frees_its_place(engines: Engines) -> None:
    engine = engines.start("--max-num-seqs", "1")
    body = completion_fields("x", 60_000) | {"stream": True}
    with (
        httpx.Client(timeout=WAIT_S) as client,
        client.stream("POST", f"{engine.url}/v1/completions", json=body) as response,
    ):
        lines = response.iter_lines()
        next(lines)
        assert engine.metric("num_requests_running") == 1
        assert engine.metric("kv_cache_usage_perc") > 0
    assert engine.complete("y", 2).status_code == 200
    assert engine.metric("request_success_total", 'finished_reason="abort"') == 1


def test_identity_models_and_unknown_paths(engines: Engines) -> None:
    engine = engines.start()
    with httpx.Client(base_url=engine.url) as client:
        assert (client.get("/health").status_code, client.get("/health").content) == (200, b"")
        assert client.get("/version").json() == {"version": "0.18.0"}
        (model,) = client.get("/v1/models").json()["data"]
        assert (model["id"], model["max_model_len"], model["owned_by"]) == (MODEL, 65536, "vllm")
        assert client.get("/nothing").status_code == client.post("/reset_prefix_cache").status_code == 404
        assert client.post("/health").status_code == 405
        assert client.post("/tokenize", json={"model": MODEL, "prompt": "ab"}).json()["tokens"] == [97, 98]
        assert client.post("/detokenize", json={"model": MODEL, "tokens": [97, 98]}).json() == {"prompt": "ab"}


def test_refusals_come_over_the_wire_and_keep_the_connection(engines: Engines) -> None:
    engine = engines.start()
    with httpx.Client(base_url=engine.url) as client:
        assert client.post("/v1/completions", content=b"{").status_code == 400
        assert client.post("/v1/completions", json={"model": "x", "prompt": "a"}).status_code == 404
        long = client.post("/v1/completions", json={"model": MODEL, "prompt": [1] * 65536, "max_tokens": 1})
        assert (long.status_code, long.json()["error"]["param"]) == (400, "input_tokens")
        assert client.get("/health").status_code == 200


def test_the_prefix_cache_can_be_reset_in_developer_mode_only(engines: Engines) -> None:
    engine = engines.start("--enable-prompt-tokens-details", developer=True)
    prompt = list(range(64))
    engine.complete(prompt, 2)
    assert engine.complete(prompt, 2).json()["usage"]["prompt_tokens_details"] == {"cached_tokens": 48}
    assert httpx.post(f"{engine.url}/reset_prefix_cache").status_code == 200
    assert engine.complete(prompt, 2).json()["usage"]["prompt_tokens_details"] is None


def _raw(port: int, sent: bytes, answers: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as connection:
        connection.sendall(sent)
        received = b""
        while received.count(b"HTTP/1.1") < answers or not received.endswith((b"}", b"0\r\n\r\n", b".")):
            data = connection.recv(65536)
            if not data:
                break
            received += data
        return received


def test_requests_sent_ahead_are_answered_in_order(engines: Engines) -> None:
    port = engines.start().port
    body = orjson.dumps(completion_fields("x", 2) | {"stream": True})
    post = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    get = b"GET /version HTTP/1.1\r\nhost: x\r\n\r\n"
    received = _raw(port, get + post + get * 200, 202)
    assert received.count(b"HTTP/1.1 200 OK") == 202
    first, stream, last = received.index(b'"version"'), received.index(b"[DONE]"), received.rindex(b'"version"')
    assert first < stream < last


def test_a_client_that_asks_before_it_sends_its_body_is_told_to_go_on(engines: Engines) -> None:
    port = engines.start().port
    body = orjson.dumps(completion_fields("x", 2))
    head = b"POST /v1/completions HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(body)
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as connection:
        connection.sendall(head)
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"NONSENSE\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 70_000, b"431"),
        (b"GET /version HTTP/1.0\r\n\r\n", b"200"),
    ],
)
def test_odd_requests_get_an_answer_and_the_server_lives(engines: Engines, sent: bytes, status: bytes) -> None:
    engine = engines.start()
    assert _raw(engine.port, sent, 1).startswith(b"HTTP/1.1 " + status)
    assert httpx.get(f"{engine.url}/health").status_code == 200
