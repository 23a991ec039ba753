"""One canonical form of a JSON value, so that equal things have equal hashes on every machine."""

import hashlib
import json
from typing import Any


def encode(value: Any) -> bytes:
    """Return UTF-8 JSON with sorted keys and no spaces; raises ValueError for NaN and infinities."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest(value: Any) -> str:
    """Return the SHA-256 (64 hex digits) of the canonical form of a JSON-able value."""
    return hashlib.sha256(encode(value)).hexdigest()


def digest_bytes(data: bytes) -> str:
    """Return the SHA-256 (64 hex digits) of bytes as they are."""
    return hashlib.sha256(data).hexdigest()
