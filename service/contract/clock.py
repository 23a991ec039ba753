"""Time is passed in. Nothing but an implementation of this protocol asks the operating system for it."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Wall time for records and leases, monotonic time for durations."""

    def now(self) -> datetime:
        """Return the current time, aware, in UTC."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds that never go backwards; only differences mean something."""
        ...
