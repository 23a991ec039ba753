"""However a stream is cut into reads, the record is the same."""

import itertools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.load.record import Ticket, events, record
from runners.load.wire import Ending, Exchange
from service.ruler.rawlog import CountedBy, Outcome, Role

TICKET = Ticket(3, Role.MEASURED, 10, ())
BASE_NS = 1_000_000


def chunk(total: int, tokens: int = 1, finish: str | None = None, text: str = "é\u2028", **drop: Any) -> bytes:
    choice = {"index": 0, "text": text * tokens, "token_ids": [1] * tokens, "finish_reason": finish}
    event: dict[str, Any] = {"choices": [choice], "usage": {"prompt_tokens": 10, "completion_tokens": total}}
    choice.update(drop.get("choice", {}))
    event.update(drop.get("event", {}))
    return b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n"


USAGE = {"prompt_tokens": 10, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}}
FINAL = b"data: " + json.dumps({"choices": [], "usage": USAGE}).encode() + b"\n\n"
DONE = b"data: [DONE]\n\n"
STREAM = chunk(1) + b": ping\n\n" + chunk(2) + chunk(3, finish="length").replace(b"\n", b"\r\n") + FINAL + DONE


def http(body: bytes, chunked: int | None, status: str = "200 OK", kind: str = "text/event-stream") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n".encode()
    if chunked is None:
        return head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    pieces = [body[k : k + chunked] for k in range(0, len(body), chunked)]
    return (
        head + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in [*pieces, b""])
    )


def exchange(data: list[bytes], ending: Ending = Ending.COMPLETE, status: int = 200) -> Exchange:
    reads = [(BASE_NS + 1_000_000 * (n + 1), piece) for n, piece in enumerate(data)]
    return Exchange(BASE_NS + 5_000, reads[-1][0] if reads else BASE_NS + 9_000, reads, ending, status)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 5000), max_size=30), st.none() | st.integers(1, 400))
def test_any_cut_into_reads_and_chunks_gives_the_same_counts(cuts: list[int], chunked: int | None) -> None:
    whole = http(STREAM, chunked)
    bounds = sorted({0, len(whole), *(c % len(whole) for c in cuts)})
    pieces = [whole[a:b] for a, b in itertools.pairwise(bounds)]
    made = record(TICKET, exchange(pieces), BASE_NS).record
    assert (made.outcome, made.error) == (Outcome.OK, "")
    assert made.tokens.tolist() == [1, 1, 1]
    assert made.finish_reason == "length"
    assert (made.usage.prompt, made.usage.completion, made.usage.continuous, made.usage.cached) == (10, 3, 3, 8)
    assert made.counted_by is CountedBy.IDS
    assert (np.diff(made.event_us) >= 0).all()
    # an event that shares its read has the stamp of the one before, and no other has
    assert made.shared[1:].tolist() == (np.diff(made.event_us) == 0).astype(int).tolist()


def test_an_event_belongs_to_the_read_that_completed_it() -> None:
    one, two = chunk(1), chunk(2, finish="length")
    pieces = [http(one[:20] + one[20:] + two + DONE, None)]
    at = pieces[0].index(two) - 1  # the blank line after the first event comes with the second read
    made = record(TICKET, exchange([pieces[0][:at], pieces[0][at:]]), BASE_NS).record
    assert made.event_us.tolist() == [2000, 2000]
    assert made.shared.tolist() == [0, 1]
    assert (made.send_us, made.end_us) == (5, 2000)


def test_names_comments_and_several_data_lines() -> None:
    stream = b": hi\n\nevent: error\ndata: a\ndata:b\n\nid: 7\n\ndata: c\r\n\r\ndata: unfinished"
    assert list(events([(1, stream[:30]), (2, stream[30:])])) == [(2, b"error", b"a\nb"), (2, b"", b"c")]


@pytest.mark.parametrize(
    ("choice", "event", "tokens", "by"),
    [
        ({}, {}, [1, 2], CountedBy.IDS),
        ({}, {"usage": None}, [1, 2], CountedBy.IDS),
        ({"token_ids": None}, {}, [1, 2], CountedBy.USAGE),
        ({"token_ids": None}, {"usage": None}, [1, 1], CountedBy.EVENTS),
        ({"text": ""}, {}, [1, 2], CountedBy.IDS),
    ],
)
def test_tokens_are_counted_by_the_best_there_is(
    choice: dict[str, Any], event: dict[str, Any], tokens: list[int], by: CountedBy
) -> None:
    body = b"".join(chunk(total, count, choice=choice, event=event) for total, count in ((1, 1), (3, 2)))
    made = record(TICKET, exchange([http(body + DONE, 7)]), BASE_NS).record
    assert (made.tokens.tolist(), made.counted_by) == (tokens, by)


def test_an_event_without_a_token_is_no_token() -> None:
    opener = chunk(0, 0, text="")
    made = record(TICKET, exchange([http(opener, None), b""]), BASE_NS).record
    assert made.tokens.tolist() == []


@pytest.mark.parametrize(
    ("data", "ending", "status", "outcome", "says", "code"),
    [
        (
            http(b'{"error":{"message":"no"}}', None, "404 Not Found"),
            Ending.COMPLETE,
            404,
            Outcome.HTTP_ERROR,
            "HTTP 404",
            404,
        ),
        (
            http(chunk(1) + b'data: {"error": {"message": "Token id 600", "code": 400}}\n\n' + DONE, 9),
            Ending.COMPLETE,
            200,
            Outcome.SERVER_ERROR,
            "Token id 600",
            400,
        ),
        (
            http(b'data: {"object":"error","message":"bad"}\n\n', 9),
            Ending.COMPLETE,
            200,
            Outcome.SERVER_ERROR,
            "bad",
            None,
        ),
        (http(b"event: error\ndata: {}\n\n", 9), Ending.RESET, 200, Outcome.SERVER_ERROR, "{}", None),
        (http(b"data: {nonsense}\n\n" + DONE, 9), Ending.COMPLETE, 200, Outcome.BAD_RESPONSE, "not JSON", None),
        (http(b"data: 5\n\n" + DONE, 9), Ending.COMPLETE, 200, Outcome.BAD_RESPONSE, "no object", None),
        (
            http(b"{}", None, kind="application/json"),
            Ending.COMPLETE,
            200,
            Outcome.BAD_RESPONSE,
            "no event stream",
            None,
        ),
        (b"SSH-2.0-x\r\n", Ending.GARBLED, 0, Outcome.BAD_RESPONSE, "", None),
        (http(chunk(1), 9), Ending.COMPLETE, 200, Outcome.TRUNCATED, "", None),
        (http(chunk(1), 9)[:-5], Ending.CLOSED, 200, Outcome.TRUNCATED, "", None),
        (b"", Ending.CLOSED, 0, Outcome.TRUNCATED, "", None),
        (http(chunk(1), 9)[:-5], Ending.RESET, 200, Outcome.RESET, "", None),
        (http(chunk(1) + DONE, 9)[:-5], Ending.RESET, 200, Outcome.RESET, "", None),
        (http(chunk(1) + DONE, 900)[:-5], Ending.CLOSED, 200, Outcome.OK, "", None),
        (http(chunk(1), 9)[:-5], Ending.STALLED, 200, Outcome.STALLED, "", None),
        (http(chunk(1), 9)[:-5], Ending.DEADLINE, 200, Outcome.DEADLINE, "", None),
        (b"", Ending.UNREACHABLE, 0, Outcome.UNREACHABLE, "", None),
    ],
)
def test_whatever_comes_back_there_is_an_outcome(
    data: bytes, ending: Ending, status: int, outcome: Outcome, says: str, code: int | None
) -> None:
    got = record(TICKET, exchange([data] if data else [], ending, status), BASE_NS)
    assert got.record.outcome is outcome
    assert says in got.record.error
    assert got.error_code == code


@given(st.lists(st.binary(max_size=60), max_size=6), st.sampled_from(Ending), st.sampled_from([0, 200, 500]))
def test_junk_never_raises(junk: list[bytes], ending: Ending, status: int) -> None:
    bodies = [http(b"".join(b"data: %b\n\n" % j for j in junk), 11)]
    for data in (junk, bodies):
        record(TICKET, exchange(data, ending, status), BASE_NS)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**64) + 1, 2**64 - 1)
        | st.floats(allow_nan=False)
        | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["choices", "usage", "token_ids", "completion_tokens", "error", "code", "finish_reason"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_any_json_in_an_event_gives_a_record_that_can_be_written(message: Any) -> None:
    body = b"data: " + json.dumps(message).encode() + b"\n\n" + DONE
    made = record(TICKET, exchange([http(body, None)]), BASE_NS).record
    assert (made.tokens >= 1).all()
