"""Time for tests: it stands still until it is told to move."""

from datetime import UTC, datetime, timedelta


class SimulatedClock:
    """Implements service.contract.clock.Clock; both of its times move together, by ``advance``."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = start
        self._monotonic_s = 1000.0

    def now(self) -> datetime:
        return self._now

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self._monotonic_s += seconds
