"""Raw logs made by hand."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from service.contract.workloads import Workload
from service.ruler import RULER_VERSION
from service.ruler.rawlog import ClientFigures, LogHeader, Outcome, Phase, RawLog, RequestRecord, Role, Usage

WORKLOAD = Workload(
    name="hand", prefix_tokens=64, suffix_tokens=32, output_tokens=4, concurrency=2, requests=2, warmup_requests=2
)


def request(
    index: int, send_ms: float, at_ms: Sequence[float], tokens: Sequence[int] | None = None, **changes: Any
) -> RequestRecord:
    """A good request that got events at these times, one token each unless said otherwise; times in milliseconds."""
    counts = list(tokens) if tokens is not None else [1] * len(at_ms)
    total = sum(counts)
    stamps = np.array([round(t * 1000) for t in at_ms], dtype=np.int64)
    values: dict[str, Any] = {
        "index": index,
        "role": Role.MEASURED,
        "prompt_tokens": 96,
        "send_us": round(send_ms * 1000),
        "end_us": int(stamps[-1]) if len(stamps) else round(send_ms * 1000),
        "event_us": stamps,
        "tokens": np.array(counts, dtype=np.int64),
        "shared": np.zeros(len(stamps), dtype=np.int64),
        "outcome": Outcome.OK,
        "finish_reason": "length",
        "usage": Usage(prompt=96, completion=total, cached=64, continuous=total),
    }
    return RequestRecord(**(values | changes))


def log(
    requests: Sequence[RequestRecord],
    workload: Workload = WORKLOAD,
    phase: Phase = Phase.MEASURE,
    client: ClientFigures | None = None,
) -> RawLog:
    """A log of them."""
    header = LogHeader(
        ruler_version=RULER_VERSION,
        workload=workload.digest,
        prompts="ab" * 32,
        phase=phase,
        repetition=1 if phase is Phase.MEASURE else 0,
        base_ns=123_456_789,
        client=client or ClientFigures(),
    )
    return RawLog(header, requests)


def good() -> RawLog:
    """Two requests at once, 4 tokens each, everything right."""
    return log([request(0, 0, [10, 12, 14, 16]), request(1, 1, [11, 13, 15, 17])])
