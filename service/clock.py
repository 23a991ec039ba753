"""The real clock."""

import time
from datetime import UTC, datetime


class SystemClock:
    """The operating system's clocks (implements service.contract.clock.Clock)."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic_s(self) -> float:
        return time.monotonic()
