"""Prompts: one file of token ids per workload, the same bytes on every machine.

File: ``BSPROMP1 | uint32 prefix, suffix, warm-up, measured counts | workload digest | ids | SHA-256 of all before``,
numbers and ids as little-endian uint32: the shared prefix, then every warm-up suffix, then those of each repetition.

Ids come from ``PCG64(SeedSequence([seed, stream])).random_raw``, which numpy promises never to change (NEP 19; the
methods of Generator carry no such promise), through a table of whole numbers: no floating point, so no machine's
rounding. Their frequencies fall like natural text's, as 1 / (rank + 3), and low ids are the frequent ones, as in a BPE
vocabulary: degenerate prompts would skew a mixture of experts.

A suffix begins with its own serial number, so that no two share even the first block of a prefix cache.
"""

import hashlib
import os
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson

from service.contract.errors import InvalidInput
from service.contract.workloads import Workload

Ids = npt.NDArray[np.uint32]

MAGIC = b"BSPROMP1"
RANKS = 50_000
_HEAD = struct.Struct("<8s4I32s")


@dataclass(frozen=True)
class PromptFile:
    """A verified file of prompts: where it is, and the hash of its bytes."""

    path: Path
    sha256: str


@dataclass(frozen=True, eq=False)
class Prompts:
    """The ids of a file: ``prefix`` (P,), ``warm`` (W, S), ``measured`` (repetitions, requests, S)."""

    file: PromptFile
    prefix: Ids
    warm: Ids
    measured: Ids


def prepare(workload: Workload, directory: Path) -> PromptFile:
    """Return the workload's file in ``directory``, writing it if it is not there or damaged.

    It appears whole or not at all. Takes about a second per 20 million tokens: call it from a thread, not from a loop.
    Raises InvalidInput if suffixes are too short to be told apart, OSError if the disk is full.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{workload.digest}.prompts"
    try:
        return load(path, workload).file
    except (FileNotFoundError, InvalidInput):
        content = _content(workload)
    write_whole(path, content)
    return PromptFile(path, hashlib.sha256(content).hexdigest())


def load(path: Path, workload: Workload) -> Prompts:
    """Return the prompts in a file; raises InvalidInput if it is damaged or of another workload."""
    data = path.read_bytes()
    counts = (workload.prefix_tokens, workload.suffix_tokens, workload.warmup_requests)
    measured = workload.repetitions * workload.requests
    head = _HEAD.pack(MAGIC, *counts, measured, bytes.fromhex(workload.digest))
    size = len(head) + 4 * (counts[0] + counts[1] * (counts[2] + measured)) + 32
    if not data.startswith(head) or len(data) != size or hashlib.sha256(data[:-32]).digest() != data[-32:]:
        raise InvalidInput(f"{path} is damaged, or not the prompts of workload {workload.name}")
    ids = np.frombuffer(data[len(head) : -32], dtype="<u4").astype(np.uint32)
    prefix, suffixes = ids[: counts[0]], ids[counts[0] :].reshape(-1, counts[1])
    shape = (workload.repetitions, workload.requests, counts[1])
    file = PromptFile(path, hashlib.sha256(data).hexdigest())
    return Prompts(file, prefix, suffixes[: counts[2]], suffixes[counts[2] :].reshape(shape))


def encode(ids: Ids) -> bytes:
    """Return ids as the inside of a JSON array, without its brackets."""
    return orjson.dumps(np.ascontiguousarray(ids), option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]


def body(model: str, output_tokens: int, seed: int, prefix: bytes, suffix: bytes) -> tuple[bytes, ...]:
    """Return a completion request's body as parts to be sent one after another; ``prefix`` and ``suffix`` are encoded
    ids, shared between requests, so that a thousand prompts do not hold a thousand copies of the prefix."""
    options = {
        "max_tokens": output_tokens,
        "min_tokens": output_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "seed": seed,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "return_token_ids": True,
    }
    head = b'{"model":' + orjson.dumps(model) + b',"prompt":['
    prompt = (prefix, b",", suffix) if suffix else (prefix,)
    return (head, *prompt, b"]," + orjson.dumps(options)[1:])


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all, also after a power cut."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _content(workload: Workload) -> bytes:
    count = workload.warmup_requests + workload.repetitions * workload.requests
    spread = workload.vocab_high - workload.vocab_low
    digits = _digits(count, spread)
    if digits > workload.suffix_tokens:
        raise InvalidInput(
            f"workload {workload.name}: {count} suffixes of {workload.suffix_tokens} tokens out of {spread} ids "
            "cannot all differ; use longer suffixes, more ids or fewer requests"
        )
    head = _HEAD.pack(
        MAGIC,
        workload.prefix_tokens,
        workload.suffix_tokens,
        workload.warmup_requests,
        count - workload.warmup_requests,
        bytes.fromhex(workload.digest),
    )
    table = _table(spread)
    parts = [head, _draw(workload, table, 0, workload.prefix_tokens).tobytes()]
    for serial in range(count):
        ids = _draw(workload, table, serial + 1, workload.suffix_tokens)
        for place in range(digits):
            # Lowest digit first: up to `spread` suffixes differ in their very first token.
            ids[place] = workload.vocab_low + (serial // spread**place + workload.seed) % spread
        parts.append(ids.tobytes())
    content = b"".join(parts)
    return content + hashlib.sha256(content).digest()


def _digits(count: int, base: int) -> int:
    digits = 1
    while base**digits < count:
        digits += 1
    return digits


def _table(spread: int) -> npt.NDArray[np.uint64]:
    ranks = np.arange(min(spread, RANKS), dtype=np.uint64)
    total = np.cumsum(np.uint64(1 << 27) // (ranks + np.uint64(3)), dtype=np.uint64)
    table: npt.NDArray[np.uint64] = (total << np.uint64(32)) // total[-1]
    return table


def _draw(workload: Workload, table: npt.NDArray[np.uint64], stream: int, count: int) -> Ids:
    bits = np.random.PCG64(np.random.SeedSequence([workload.seed, stream])).random_raw(count)
    ranks = np.searchsorted(table, np.asarray(bits, dtype=np.uint64) >> np.uint64(32), side="right")
    return (ranks + workload.vocab_low).astype("<u4")
