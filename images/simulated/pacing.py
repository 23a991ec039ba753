"""Waiting for an instant to within some ten microseconds, without spinning for long."""

import ctypes
import time
from typing import Protocol

_COARSE_NS = 300_000
_FINE_NS = 50_000
_PR_SET_TIMERSLACK = 29


class Pacer(Protocol):
    """Time as the engine sees it: monotonic nanoseconds."""

    def now_ns(self) -> int:
        """The present instant."""

    def wait_until(self, deadline_ns: int) -> int:
        """Return at the instant or as soon as possible after it, never before; returns the present instant."""

    def yield_to_loop(self) -> None:
        """Let the event loop's thread run now."""


class MonotonicPacer:
    """The machine's monotonic clock.

    Sleeps until 0.3 ms before the instant, then in naps of at most 50 us; only the rest is spun, and that is shorter
    than a nap: two engines and two clients share two cores.
    """

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def wait_until(self, deadline_ns: int) -> int:
        while (now := time.monotonic_ns()) < deadline_ns:
            left = deadline_ns - now
            if left > _COARSE_NS:
                time.sleep((left - _COARSE_NS) / 1e9)
            elif left > 2 * _FINE_NS:
                time.sleep(_FINE_NS / 1e9)
        return now

    def yield_to_loop(self) -> None:
        # A sleep gives up the interpreter lock, so that the tokens go out before the bookkeeping is done.
        time.sleep(_FINE_NS / 1e9)


def sharpen_timers() -> None:
    """Ask the kernel to end this thread's sleeps on time instead of up to 50 us late."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
