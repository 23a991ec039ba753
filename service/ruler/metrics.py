"""What is computed from a raw log, and how. One definition per name, for every version that is measured.

Sources: the definitions are those of ``vllm bench serve`` (vllm/benchmarks/serve.py, equal in 0.18 to 0.33) unless a
formula says otherwise. Percentiles are numpy's linear ones. Only requests whose outcome is ok are scored: those of
role ``measured`` in a repetition, of role ``warm`` in the log of the warm-up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np
import numpy.typing as npt

from service.contract.builds import Wire
from service.contract.errors import UnknownMetric
from service.contract.workloads import Workload
from service.ruler.rawlog import Outcome, Phase, RawLog, RequestRecord, Role
from service.ruler.stretches import Stretch, bridge, inside, stretches

Floats = npt.NDArray[np.float64]
Direction = Literal["lower_better", "higher_better", "neither"]

BRIDGE_US = 50_000
"""A dip in the number of requests under way shorter than this is the turnaround of a slot, not the end of a window."""


@dataclass(frozen=True)
class MetricInfo:
    """What a metric is called, in which unit it is, which way is better, and how it is computed."""

    unit: str
    direction: Direction
    label: str
    formula: str


class Metrics(Wire):
    """Every metric of one log, under the names of METRICS; None where the log does not hold what it needs."""

    tpot_p50_ms: float | None = None
    tpot_p90_ms: float | None = None
    itl_p50_ms: float | None = None
    itl_p99_ms: float | None = None
    itl_mean_ms: float | None = None
    itl_steady_p50_ms: float | None = None
    ttft_p50_ms: float | None = None
    ttft_p90_ms: float | None = None
    ttft_cold_prefix_ms: float | None = None
    e2el_p50_ms: float | None = None
    output_tok_s: float | None = None
    output_tok_s_run: float | None = None
    requests: float | None = None
    output_tokens: float | None = None
    duration_s: float | None = None

    def value(self, name: str) -> float | None:
        """Return one metric by name; raises UnknownMetric, naming those that exist."""
        info(name)
        value: float | None = getattr(self, name)
        return value


_TPOT = "(E2EL − TTFT) / (output tokens − 1) of a request with at least two tokens"
_ITL = (
    "gap between successive token-carrying events of a request, weighted by tokens: an event of k tokens counts as k "
    "gaps of gap/k (vLLM counts it once); events that came in one read keep their gap of 0"
)
_TTFT = "stamp of the read that completed the first token-carrying event − stamp before the request's first byte"

METRICS: Mapping[str, MetricInfo] = MappingProxyType(
    {
        "tpot_p50_ms": MetricInfo("ms", "lower_better", "TPOT p50", f"median over requests of {_TPOT}"),
        "tpot_p90_ms": MetricInfo("ms", "lower_better", "TPOT p90", f"90th percentile over requests of {_TPOT}"),
        "itl_p50_ms": MetricInfo("ms", "lower_better", "ITL p50", f"median over all requests' tokens: {_ITL}"),
        "itl_p99_ms": MetricInfo("ms", "lower_better", "ITL p99", f"99th percentile over all requests' tokens: {_ITL}"),
        "itl_mean_ms": MetricInfo("ms", "lower_better", "ITL mean", f"mean over all requests' tokens: {_ITL}"),
        "itl_steady_p50_ms": MetricInfo(
            "ms",
            "lower_better",
            "steady ITL p50",
            "as ITL p50, over those gaps during which at least `concurrency` requests were between their first and "
            "their last token (after SGLang's full-batch decode window, sglang.benchmark stream_metrics.py)",
        ),
        "ttft_p50_ms": MetricInfo("ms", "lower_better", "TTFT p50", f"median over requests of: {_TTFT}"),
        "ttft_p90_ms": MetricInfo("ms", "lower_better", "TTFT p90", f"90th percentile over requests of: {_TTFT}"),
        "ttft_cold_prefix_ms": MetricInfo(
            "ms", "lower_better", "cold TTFT of the prefix", f"of the first priming request (warm-up log only): {_TTFT}"
        ),
        "e2el_p50_ms": MetricInfo(
            "ms", "lower_better", "E2EL p50", "median over requests of: last token-carrying event − first byte sent"
        ),
        "output_tok_s": MetricInfo(
            "tok/s",
            "higher_better",
            "output tok/s, steady",
            "tokens that arrived in the longest stretch with at least `concurrency` requests under way (dips shorter "
            f"than {BRIDGE_US // 1000} ms belong to it), by its duration (after SGLang's steady_state.py)",
        ),
        "output_tok_s_run": MetricInfo(
            "tok/s", "higher_better", "output tok/s, whole run", "output_tokens / duration_s, ramp and tail included"
        ),
        "requests": MetricInfo("requests", "neither", "requests", "requests that ended well"),
        "output_tokens": MetricInfo("tokens", "neither", "output tokens", "tokens that they received"),
        "duration_s": MetricInfo("s", "neither", "duration", "last token-carrying event − first byte sent, of all"),
    }
)


def info(name: str) -> MetricInfo:
    """Return what a metric is; raises UnknownMetric, naming those that exist."""
    if name not in METRICS:
        raise UnknownMetric(f"there is no metric {name!r}; known are: {', '.join(METRICS)}", known=list(METRICS))
    return METRICS[name]


def scored(log: RawLog) -> list[RequestRecord]:
    """Return the requests that a log is about: measured ones, or those of the warm-up; failed ones included."""
    role = Role.MEASURED if log.header.phase is Phase.MEASURE else Role.WARM
    return [request for request in log.requests if request.role is role]


def measure(log: RawLog, workload: Workload) -> Metrics:
    """Return every metric of a log of this workload. Says nothing about whether it may be used: see validity.py."""
    good = [r for r in scored(log) if r.outcome is Outcome.OK and len(r.event_us)]
    cold = {"ttft_cold_prefix_ms": _cold_prefix_ms(log)}
    if not good:
        return Metrics.model_validate(cold)
    ttft = np.array([ttft_us(r) for r in good]) / 1e3
    e2el = np.array([r.event_us[-1] - r.send_us for r in good]) / 1e3
    tokens = np.array([r.output_tokens for r in good])
    several = tokens > 1
    tpot = (e2el - ttft)[several] / (tokens[several] - 1)
    gaps = np.concatenate([gaps_ms(r) for r in good])
    duration_s = (max(int(r.event_us[-1]) for r in good) - min(r.send_us for r in good)) / 1e6
    values = {
        "tpot_p50_ms": _percentile(tpot, 50),
        "tpot_p90_ms": _percentile(tpot, 90),
        "itl_p50_ms": _percentile(gaps, 50),
        "itl_p99_ms": _percentile(gaps, 99),
        "itl_mean_ms": float(gaps.mean()) if len(gaps) else None,
        "itl_steady_p50_ms": _percentile(_steady_gaps_ms(good, decoding(log, workload.concurrency)), 50),
        "ttft_p50_ms": _percentile(ttft, 50),
        "ttft_p90_ms": _percentile(ttft, 90),
        "e2el_p50_ms": _percentile(e2el, 50),
        "output_tok_s": _steady_tok_s(log.requests, under_way(log, workload.concurrency)),
        "output_tok_s_run": float(tokens.sum()) / duration_s if duration_s > 0 else None,
        "requests": float(len(good)),
        "output_tokens": float(tokens.sum()),
        "duration_s": duration_s,
    }
    return Metrics.model_validate(values | cold)


def ttft_us(request: RequestRecord) -> int:
    """Return the time to the first token of a request that has one, in microseconds."""
    return int(request.event_us[0]) - request.send_us


def gaps_ms(request: RequestRecord) -> Floats:
    """Return one gap per token after the first event, in milliseconds: their sum is E2EL − TTFT."""
    gaps = np.diff(request.event_us) / 1e3
    return np.repeat(gaps / request.tokens[1:], request.tokens[1:])


def decoding(log: RawLog, level: int) -> list[Stretch]:
    """Return the stretches in which at least ``level`` requests were between their first and their last token."""
    return stretches([(int(r.event_us[0]), int(r.event_us[-1])) for r in log.requests if len(r.event_us)], level)


def under_way(log: RawLog, level: int) -> list[Stretch]:
    """Return the stretches in which at least ``level`` requests were under way, short dips bridged."""
    return bridge(stretches([(r.send_us, r.end_us) for r in log.requests], level), BRIDGE_US)


def describe() -> str:
    """Return the metrics as a Markdown table, for docs/metrics.md."""
    better = {"lower_better": "lower", "higher_better": "higher", "neither": "–"}
    rows = [f"| `{n}` | {m.label} | {m.unit} | {better[m.direction]} | {m.formula} |" for n, m in METRICS.items()]
    return "\n".join(["| name | label | unit | better | formula |", "|---|---|---|---|---|", *rows, ""])


def _cold_prefix_ms(log: RawLog) -> float | None:
    prime = [r for r in log.requests if r.role is Role.PRIME and r.index == 0 and r.outcome is Outcome.OK]
    return ttft_us(prime[0]) / 1e3 if prime and len(prime[0].event_us) else None


def _steady_gaps_ms(requests: list[RequestRecord], windows: list[Stretch]) -> Floats:
    steady = []
    for request in requests:
        kept = np.repeat(inside(request.event_us[:-1], request.event_us[1:], windows), request.tokens[1:])
        steady.append(gaps_ms(request)[kept])
    return np.concatenate(steady)


def _steady_tok_s(requests: Sequence[RequestRecord], windows: list[Stretch]) -> float | None:
    if not windows:
        return None
    start, end = max(windows, key=lambda w: w[1] - w[0])
    tokens = sum(int(r.tokens[(r.event_us > start) & (r.event_us <= end)].sum()) for r in requests)
    return tokens * 1e6 / (end - start) if end > start else None


def _percentile(values: Floats, q: float) -> float | None:
    return float(np.percentile(values, q)) if len(values) else None
