"""When things happen: the step loop, in a thread of its own, with absolute deadlines.

A step lasts from the last emission to its own. Its deadline is set when it begins; a step that comes late shifts those
that follow, and none is ever shortened to catch up: a measured interval is then never below what was planned.
"""

import gc
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from images.simulated.metrics import Metrics
from images.simulated.pacing import Pacer, sharpen_timers
from images.simulated.profile import Profile
from images.simulated.scheduler import Scheduler, Sequence, Step
from images.simulated.steplog import StepLog
from images.simulated.steptime import Noise, step_ms

_COLLECT_NS = 30_000_000_000

Emission = tuple[int, bool]
"""Number of the request that gets a token, and whether it is its last."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long steps take: the profile, its noise, and by how much simulated time is compressed (1 to 4)."""

    profile: Profile
    noise: Noise
    compression: float


@dataclass(frozen=True, slots=True)
class Outlet:
    """Where the engine reports, on its own thread; both must hand over and return.

    deliver: the tokens of a step, at the instant of their emission. break_off: the thread ends by an error.
    """

    deliver: Callable[[list[Emission]], None]
    break_off: Callable[[], None]


class Engine:
    """Runs steps while there is work. submit, abort and reset_prefix_cache may be called from any thread."""

    def __init__(
        self,
        scheduler: Scheduler,
        pace: Pace,
        pacer: Pacer,
        metrics: Metrics,
        log: StepLog,
        outlet: Outlet,
    ) -> None:
        self._scheduler = scheduler
        self._pace = pace
        self._pacer = pacer
        self._metrics = metrics
        self._log = log
        self._outlet = outlet
        self._orders: deque[Callable[[], object]] = deque()
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="engine")
        self._collected_ns = 0

    def start(self) -> None:
        """Start the thread. Automatic garbage collection must be off: the engine collects, between steps."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread after its present step; requests that run are left unfinished."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def submit(self, sequence: Sequence) -> None:
        """Queue a request; its tokens come through `deliver`."""
        self._order(lambda: self._scheduler.add(sequence))

    def abort(self, sequence: Sequence) -> None:
        """Drop a request before the next step; a token that is due in the present one may still come."""
        self._order(lambda: self._abort(sequence))

    def reset_prefix_cache(self) -> None:
        """Forget all cached prefixes, unless requests are running (vLLM does not confirm it either)."""
        self._order(self._scheduler.cache.forget_idle)

    def _order(self, order: Callable[[], object]) -> None:
        self._orders.append(order)
        self._wake.set()

    def _abort(self, sequence: Sequence) -> None:
        if self._scheduler.abort(sequence):
            self._metrics.finished["abort"] += 1
            self._log_request(sequence, "abort")

    def _run(self) -> None:
        try:
            self._loop()
        finally:
            if not self._stopping:
                self._outlet.break_off()

    def _loop(self) -> None:
        sharpen_timers()
        begun_ns: int | None = None
        while not self._stopping:
            self._wake.clear()
            while self._orders:
                self._orders.popleft()()
            step = self._scheduler.plan_step()
            self._refresh_gauges(0)
            if step is None:
                begun_ns = None
                self._rest()
                continue
            begun_ns = self._take_step(step, begun_ns if begun_ns is not None else self._pacer.now_ns())

    def _take_step(self, step: Step, begun_ns: int) -> int:
        """Carry out one step; returns the instant of its emission, at which the next one begins."""
        pace = self._pace
        nominal_ms = step_ms(pace.profile, step.context_tokens, step.prefill_tokens) / pace.compression
        planned_ms = nominal_ms * pace.noise.launch_effect * pace.noise.next_factor()
        emissions = [(each.number, each.produced + 1 >= each.output_tokens) for each in step.emitting]
        emitted_ns = self._pacer.wait_until(begun_ns + round(planned_ms * 1e6))
        self._count(step, emitted_ns)
        self._outlet.deliver(emissions)
        self._pacer.yield_to_loop()
        for sequence in self._scheduler.complete_step(step):
            self._log_request(sequence, sequence.finish_reason)
        self._log.add(
            {
                "kind": "step",
                "start_ns": begun_ns,
                "ms": (emitted_ns - begun_ns) / 1e6,
                "nominal_ms": nominal_ms,
                "planned_ms": planned_ms,
                "decoding": step.decoding,
                "prefill_tokens": step.prefill_tokens,
                "context_tokens": step.context_tokens,
            }
        )
        self._log.flush_when_due(emitted_ns)
        if emitted_ns - self._collected_ns >= _COLLECT_NS:
            gc.collect(0)
            self._collected_ns = emitted_ns
        return emitted_ns

    def _count(self, step: Step, now_ns: int) -> None:
        """Count the step's tokens. Done before they go out, so that no client sees a token that isn't counted."""
        metrics = self._metrics
        finishing = 0
        for sequence in step.emitting:
            if sequence.produced:
                metrics.inter_token_latency.observe((now_ns - sequence.last_emit_ns) / 1e9)
            else:
                sequence.first_emit_ns = now_ns
                metrics.prompt_tokens += sequence.prompt_tokens
                metrics.time_to_first_token.observe((now_ns - sequence.arrived_ns) / 1e9)
            sequence.last_emit_ns = now_ns
            if sequence.produced + 1 >= sequence.output_tokens:
                finishing += 1
                self._count_finished(sequence)
        metrics.generation_tokens += len(step.emitting)
        self._refresh_gauges(finishing)

    def _count_finished(self, sequence: Sequence) -> None:
        metrics = self._metrics
        metrics.finished[sequence.finish_reason] += 1
        decode_s = (sequence.last_emit_ns - sequence.first_emit_ns) / 1e9
        metrics.time_per_output_token.observe(decode_s / max(1, sequence.output_tokens - 1))
        metrics.e2e_request_latency.observe((sequence.last_emit_ns - sequence.arrived_ns) / 1e9)

    def _refresh_gauges(self, finishing: int) -> None:
        metrics, scheduler = self._metrics, self._scheduler
        metrics.requests_running = len(scheduler.running) - finishing
        metrics.requests_waiting = len(scheduler.waiting)
        metrics.kv_cache_usage = scheduler.usage() if metrics.requests_running else 0.0
        metrics.prefix_cache_queries = scheduler.prefix_queries
        metrics.prefix_cache_hits = scheduler.prefix_hits

    def _log_request(self, sequence: Sequence, finish_reason: str) -> None:
        answered = {} if sequence.right is None else {"right": sequence.right}
        self._log.add(
            {
                "kind": "request",
                "number": sequence.number,
                "prompt_tokens": sequence.prompt_tokens,
                "cached_tokens": sequence.cached,
                "output_tokens": sequence.produced,
                "finish_reason": finish_reason,
                "first_emit_ns": sequence.first_emit_ns,
                "last_emit_ns": sequence.last_emit_ns,
                **answered,
            }
        )

    def _rest(self) -> None:
        """Wait for an order; tidy up first, since nothing is being timed."""
        self._log.flush()
        now_ns = self._pacer.now_ns()
        if now_ns - self._collected_ns >= _COLLECT_NS:
            gc.collect()
            self._collected_ns = now_ns
        self._wake.wait()
