"""Prompts are the same bytes everywhere, disjoint where they must be, and written once."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.load import prompts
from service.contract.errors import InvalidInput
from service.contract.workloads import Workload


def workload(**changes: Any) -> Workload:
    values = {
        "name": "small",
        "prefix_tokens": 128,
        "suffix_tokens": 32,
        "output_tokens": 8,
        "concurrency": 2,
        "requests": 4,
        "warmup_requests": 3,
        "seed": 7,
    }
    return Workload.model_validate(values | changes)


def test_the_bytes_are_pinned(tmp_path: Path) -> None:
    # If this fails, prompts changed: every cell's numbers would no longer compare. The ruler's version must grow.
    file = prompts.prepare(workload(), tmp_path)
    assert file.sha256 == "e7859de8fed6758940572695e67f3785b9640e9ffb00dccf8984ab2d5ac9f395"


def test_the_file_is_named_by_the_workload_and_written_once(tmp_path: Path) -> None:
    first = prompts.prepare(workload(), tmp_path)
    written = first.path.stat()
    again = prompts.prepare(workload(name="renamed"), tmp_path)
    assert again == first
    assert first.path.stat().st_mtime_ns == written.st_mtime_ns
    assert first.path.stat().st_ino == written.st_ino
    assert [p.name for p in tmp_path.iterdir()] == [f"{workload().digest}.prompts"]


def test_a_damaged_file_is_refused_and_made_again(tmp_path: Path) -> None:
    file = prompts.prepare(workload(), tmp_path)
    data = bytearray(file.path.read_bytes())
    data[100] ^= 1
    file.path.write_bytes(data)
    with pytest.raises(InvalidInput, match="damaged"):
        prompts.load(file.path, workload())
    assert prompts.prepare(workload(), tmp_path) == file


def test_a_file_of_another_workload_is_refused(tmp_path: Path) -> None:
    file = prompts.prepare(workload(), tmp_path)
    with pytest.raises(InvalidInput, match="not the prompts of workload small"):
        prompts.load(file.path, workload(seed=8))


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        prompts.prepare(workload(), tmp_path)
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=30, deadline=None)
@given(
    st.integers(2, 40),
    st.integers(3, 200),
    st.integers(1, 12),
    st.integers(4, 12),
    st.integers(0, 2**32 - 1),
)
def test_no_two_suffixes_share_a_beginning(suffix: int, spread: int, warm: int, requests: int, seed: int) -> None:
    import tempfile

    load = workload(
        suffix_tokens=suffix, vocab_low=5, vocab_high=5 + spread, warmup_requests=warm, requests=requests, seed=seed
    )
    count = warm + 3 * requests
    digits = 1
    while spread**digits < count:
        digits += 1
    with tempfile.TemporaryDirectory() as folder:
        if digits > suffix:
            with pytest.raises(InvalidInput, match="cannot all differ"):
                prompts.prepare(load, Path(folder))
            return
        made = prompts.load(prompts.prepare(load, Path(folder)).path, load)
    suffixes = np.concatenate([made.warm, made.measured.reshape(-1, suffix)])
    assert suffixes.shape == (count, suffix)
    assert len({tuple(s[:digits]) for s in suffixes.tolist()}) == count
    everything = np.concatenate([made.prefix, suffixes.ravel()])
    assert everything.min() >= 5
    assert everything.max() < 5 + spread


def test_ids_are_as_frequent_as_in_text_not_uniform(tmp_path: Path) -> None:
    load = workload(prefix_tokens=100_000)
    prefix = prompts.load(prompts.prepare(load, tmp_path).path, load).prefix
    ranked = [count for _, count in Counter(prefix.tolist()).most_common()]
    # Zipf: the hundredth is about a tenth to a hundredth of the first ones; uniform ids would be about 3 each.
    assert ranked[0] > 20 * ranked[99] > 0
    assert len(ranked) > 5_000


def test_a_body_is_the_json_that_vllm_wants() -> None:
    ids = np.array([5, 6, 70_000], dtype=np.uint32)
    parts = prompts.body('no"nce', 16, 3, prompts.encode(ids), prompts.encode(ids[:1]))
    assert json.loads(b"".join(parts)) == {
        "model": 'no"nce',
        "prompt": [5, 6, 70_000, 5],
        "max_tokens": 16,
        "min_tokens": 16,
        "ignore_eos": True,
        "temperature": 0,
        "seed": 3,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "return_token_ids": True,
    }
    assert orjson.loads(b"".join(prompts.body("m", 2, 0, prompts.encode(ids), b"")))["prompt"] == [5, 6, 70_000]
