"""The Prometheus text of GET /metrics, with vLLM's names, labels and buckets.

Counted by the engine's thread, rendered by the event loop: every field is a number that is replaced in one step, so a
rendering may be one step old but never torn within a field.
"""

from bisect import bisect_left
from itertools import accumulate

_TTFT_BUCKETS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_TOKEN_BUCKETS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_REQUEST_BUCKETS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
FINISH_REASONS = ("stop", "length", "abort", "error")


class Histogram:
    """Counts of observed seconds by bucket (upper bounds, inclusive, the last one +Inf), and their sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total_s = 0.0

    def observe(self, value_s: float, times: int = 1) -> None:
        """Count a value, `times` times over."""
        self.counts[bisect_left(self.bounds, value_s)] += times
        self.total_s += value_s * times


class Metrics:
    """What the engine has done since it started. Tokens, requests, and seconds in the histograms."""

    def __init__(self, model: str) -> None:
        self._labels = f'engine="0",model_name="{_escape(model)}"'
        self.requests_running = 0
        self.requests_waiting = 0
        self.kv_cache_usage = 0.0
        self.prefix_cache_queries = 0
        self.prefix_cache_hits = 0
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.preemptions = 0
        self.finished = dict.fromkeys(FINISH_REASONS, 0)
        self.time_to_first_token = Histogram(_TTFT_BUCKETS)
        self.inter_token_latency = Histogram(_TOKEN_BUCKETS)
        self.time_per_output_token = Histogram(_TOKEN_BUCKETS)
        self.e2e_request_latency = Histogram(_REQUEST_BUCKETS)

    def render(self) -> bytes:
        """The text of GET /metrics."""
        lines: list[str] = []
        gauges = (
            ("num_requests_running", "Number of requests in model execution batches.", self.requests_running),
            ("num_requests_waiting", "Number of requests waiting to be processed.", self.requests_waiting),
            ("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", self.kv_cache_usage),
        )
        for name, text, value in gauges:
            lines += self._header(name, text, "gauge")
            lines.append(f"vllm:{name}{{{self._labels}}} {float(value)}")
        counters = (
            ("prefix_cache_queries_total", "Prefix cache queries, in tokens.", self.prefix_cache_queries),
            ("prefix_cache_hits_total", "Prefix cache hits, in tokens.", self.prefix_cache_hits),
            ("num_preemptions_total", "Cumulative number of preemption from the engine.", self.preemptions),
            ("prompt_tokens_total", "Number of prefill tokens processed.", self.prompt_tokens),
            ("generation_tokens_total", "Number of generation tokens processed.", self.generation_tokens),
        )
        for name, text, value in counters:
            lines += self._header(name, text, "counter")
            lines.append(f"vllm:{name}{{{self._labels}}} {float(value)}")
        lines += self._header("request_success_total", "Count of successfully processed requests.", "counter")
        for reason, count in self.finished.items():
            engine, model = self._labels.split(",", 1)
            lines.append(f'vllm:request_success_total{{{engine},finished_reason="{reason}",{model}}} {float(count)}')
        histograms = (
            ("time_to_first_token_seconds", "Histogram of time to first token.", self.time_to_first_token),
            ("inter_token_latency_seconds", "Histogram of inter-token latency.", self.inter_token_latency),
            ("request_time_per_output_token_seconds", "Histogram of mean TPOT.", self.time_per_output_token),
            ("e2e_request_latency_seconds", "Histogram of e2e request latency.", self.e2e_request_latency),
        )
        for name, text, histogram in histograms:
            lines += self._histogram(name, text, histogram)
        return ("\n".join(lines) + "\n").encode()

    def _header(self, name: str, text: str, kind: str) -> tuple[str, str]:
        return f"# HELP vllm:{name} {text}", f"# TYPE vllm:{name} {kind}"

    def _histogram(self, name: str, text: str, histogram: Histogram) -> list[str]:
        lines = list(self._header(name, text, "histogram"))
        engine, model = self._labels.split(",", 1)
        bounds = [*(str(bound) for bound in histogram.bounds), "+Inf"]
        cumulative = list(accumulate(histogram.counts))
        for bound, count in zip(bounds, cumulative, strict=True):
            lines.append(f'vllm:{name}_bucket{{{engine},le="{bound}",{model}}} {float(count)}')
        lines.append(f"vllm:{name}_count{{{self._labels}}} {float(cumulative[-1])}")
        lines.append(f"vllm:{name}_sum{{{self._labels}}} {histogram.total_s}")
        return lines


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
