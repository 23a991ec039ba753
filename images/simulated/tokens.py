"""Tokens of the simulated model: 256 bytes, a beginning and an end mark, and further ids that only a prompt can hold.

Block hashes and outputs are computed for whole arrays at once, since a prompt has 50 000 tokens.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

BYTE_TOKENS = 256
BOS_ID = 256
EOS_ID = 257

# 32 symbols, none of which JSON escapes: an output token is the byte of one of them.
_ALPHABET = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz etao ", dtype=np.uint8)
_PRIME = 0x9E3779B97F4A7C15
_HASH_BITS = 64
_NATURAL_LOW, _NATURAL_SPAN = 64, 960

Ids = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


def encode(text: str) -> Ids:
    """The token ids of a text: its UTF-8 bytes, no special token."""
    return np.frombuffer(text.encode("utf-8", "surrogatepass"), dtype=np.uint8).astype(np.int64)


def decode(ids: Sequence[int]) -> str:
    """The text of token ids. Bytes that are not UTF-8 become U+FFFD, ids beyond the bytes are written as <|id|>."""
    parts = [bytes((token,)) if token < BYTE_TOKENS else b"<|%d|>" % token for token in ids]
    return b"".join(parts).decode("utf-8", "replace")


def _mix(words: Words) -> Words:
    """The finaliser of splitmix64, on every word."""
    words = words ^ (words >> np.uint64(30))
    words = words * np.uint64(0xBF58476D1CE4E5B9)
    words = words ^ (words >> np.uint64(27))
    words = words * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _powers(count: int) -> Words:
    """The odd constant to the powers 1 … count, modulo 2^64."""
    return np.multiply.accumulate(np.full(count, _PRIME, dtype=np.uint64))


def hash_blocks(ids: Ids, block_size: int) -> list[int]:
    """One 64-bit hash for each full block, of that block and everything before it.

    Equal prefixes give equal hashes; others differ but for chance (2^-64 a pair). The chain is a running sum of
    content hashes weighted by powers of an odd constant, so that it needs no loop over blocks.
    """
    blocks = len(ids) // block_size
    if blocks == 0:
        return []
    grid = ids[: blocks * block_size].astype(np.uint64).reshape(blocks, block_size)
    spread = _mix(grid + np.uint64(1) + _powers(block_size)[None, :])
    content = _mix(spread.sum(axis=1, dtype=np.uint64))
    chained = np.cumsum(content * _powers(blocks), dtype=np.uint64)
    hashes: list[int] = _mix(chained + np.uint64(block_size)).tolist()
    return hashes


def prompt_key(ids: Ids) -> int:
    """A 64-bit number that stands for the whole prompt."""
    return hash_blocks(ids, len(ids))[0]


def write_output(key: int, count: int) -> bytes:
    """`count` output tokens, all of them bytes of printable ASCII; the same key gives the same tokens."""
    steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_PRIME)
    return _ALPHABET[(_mix(steps + np.uint64(key)) >> np.uint64(_HASH_BITS - 5)).astype(np.intp)].tobytes()


def natural_length(key: int) -> int:
    """After how many tokens the model ends by itself (end mark included) when it is not told to ignore that."""
    return _NATURAL_LOW + int(_mix(np.array([key], dtype=np.uint64))[0]) % _NATURAL_SPAN
