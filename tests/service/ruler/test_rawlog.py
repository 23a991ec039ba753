"""The codec gives back what it was given, and says what is wrong with everything else."""

import hashlib
import struct

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from service.contract.errors import InvalidInput, TooLarge
from service.ruler import rawlog
from service.ruler.rawlog import (
    ClientFigures,
    CountedBy,
    LogHeader,
    Outcome,
    Phase,
    RawLog,
    RequestRecord,
    Role,
    Usage,
    decode,
    encode,
)
from tests.service.ruler.logs import good, log, request

times = st.integers(0, 2**34)
counts = st.none() | st.integers(0, 2**40)
digests = st.binary(min_size=32, max_size=32).map(bytes.hex)
figures = st.floats(0, 1e9)


@st.composite
def records(draw: st.DrawFn) -> list[RequestRecord]:
    sends = sorted(draw(st.lists(times, max_size=6)))
    return [draw(one_record(send)) for send in sends]


@st.composite
def one_record(draw: st.DrawFn, send_us: int) -> RequestRecord:
    gaps = draw(st.lists(st.integers(0, 2**33), max_size=12))
    n = len(gaps)
    return RequestRecord(
        index=draw(st.integers(0, 2**31)),
        role=draw(st.sampled_from(Role)),
        prompt_tokens=draw(st.integers(0, 2**31)),
        send_us=send_us,
        end_us=send_us + draw(times),
        event_us=send_us + np.cumsum(np.array(gaps, dtype=np.int64)),
        tokens=np.array(draw(st.lists(st.integers(1, 2**31), min_size=n, max_size=n)), dtype=np.int64),
        shared=np.array(draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)), dtype=np.int64),
        outcome=draw(st.sampled_from(Outcome)),
        finish_reason=draw(st.none() | st.text(max_size=20)),
        usage=Usage(*draw(st.tuples(counts, counts, counts, counts))),
        counted_by=draw(st.sampled_from(CountedBy)),
        error=draw(st.text(max_size=rawlog.MAX_TEXT)),
    )


headers = st.builds(
    LogHeader,
    raw_log_schema=st.just(rawlog.RAW_LOG_SCHEMA),
    ruler_version=st.integers(1, 1000),
    workload=digests,
    prompts=digests,
    phase=st.sampled_from(Phase),
    repetition=st.integers(0, 100),
    base_ns=st.integers(0, 2**62),
    client=st.builds(ClientFigures, loop_lag_p99_ms=figures, cpu_s=figures, reconnects=st.integers(0, 99)),
)


def assert_equal(a: RawLog, b: RawLog) -> None:
    assert a.header == b.header
    assert len(a.requests) == len(b.requests)
    for mine, other in zip(a.requests, b.requests, strict=True):
        for name in RequestRecord.__dataclass_fields__:
            left, right = getattr(mine, name), getattr(other, name)
            if isinstance(left, np.ndarray):
                assert left.dtype == right.dtype
                np.testing.assert_array_equal(left, right)
            else:
                assert left == right, name


@settings(max_examples=150, deadline=None)
@given(headers, records())
def test_decode_gives_back_what_was_encoded(header: LogHeader, requests: list[RequestRecord]) -> None:
    made = RawLog(header, requests)
    data = encode(made)
    assert_equal(decode(data), made)
    assert encode(decode(data)) == data


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_changed_byte_is_noticed(data: st.DataObject) -> None:
    whole = bytearray(encode(good()))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises((InvalidInput, TooLarge), match="raw log"):
        decode(bytes(whole))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_foreign_bytes_are_refused_with_or_without_the_magic(junk: bytes) -> None:
    for data in (junk, rawlog.MAGIC + junk, rawlog.MAGIC + hashlib.sha256(junk).digest() + junk):
        with pytest.raises((InvalidInput, TooLarge), match="raw log"):
            decode(data)


def test_a_cut_file_is_refused_at_every_length() -> None:
    whole = encode(good())
    for size in range(len(whole)):
        with pytest.raises(InvalidInput):
            decode(whole[:size])


def sealed(header_bytes: int, raw_bytes: int, packed: bytes) -> bytes:
    rest = struct.pack("<IQ", header_bytes, raw_bytes) + packed
    return rawlog.MAGIC + hashlib.sha256(rest).digest() + rest


def packed(raw: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(raw)


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    bomb = packed(bytes(64 << 20))
    with pytest.raises(TooLarge, match="announces"):
        decode(sealed(10, rawlog.MAX_RAW_BYTES + 1, bomb))
    with pytest.raises(InvalidInput, match="another size"):
        decode(sealed(10, 1000, bomb))


def test_a_frame_that_hides_its_size_is_refused() -> None:
    hiding = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 20))
    with pytest.raises(InvalidInput, match="another size"):
        decode(sealed(10, 1000, hiding))


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b"{}",
        b"null",
        b"\xff",
        b'{"about":{},"strings":[],"requests":0,"events":0}',
        b'{"requests":-1,"events":0}',
    ],
)
def test_a_header_that_makes_no_sense_is_refused(header: bytes) -> None:
    with pytest.raises(InvalidInput, match="raw log"):
        decode(sealed(len(header), len(header), packed(header)))


def test_a_log_of_another_schema_is_refused_by_its_number() -> None:
    made = good()
    other = RawLog(made.header.model_copy(update={"raw_log_schema": 2}), made.requests)
    with pytest.raises(InvalidInput, match="schema 2"):
        decode(encode(other))


@pytest.mark.parametrize(
    "broken",
    [
        request(0, 5, [3]),
        request(0, 0, [10, 9]),
        request(0, 0, [10], tokens=[0]),
        request(0, 0, [10], shared=np.array([2])),
        request(0, 5, [6], end_us=0),
    ],
)
def test_a_log_that_breaks_the_rules_is_not_written(broken: RequestRecord) -> None:
    with pytest.raises(InvalidInput):
        encode(log([broken]))


def test_texts_that_cannot_be_encoded_do_not_lose_the_log() -> None:
    [back] = decode(encode(log([request(0, 0, [1], error="\ud800" + "x" * 1000)]))).requests
    assert back.error == "?" + "x" * (rawlog.MAX_TEXT - 1)


def test_a_token_takes_at_most_two_bytes() -> None:
    rng = np.random.default_rng(1)
    requests = []
    for n in range(16):
        steps = 20 + rng.normal(0, 0.2, 1024)
        requests.append(request(n, n * 0.1, list(1000 + np.cumsum(steps))))
    data = encode(log(requests))
    assert len(data) <= 2 * 16 * 1024
