"""Things to send, and a clock that only moves when told."""

from datetime import UTC, datetime, timedelta
from typing import Any

BUILD: dict[str, Any] = {
    "name": "v0.18.0",
    "version": "v0.18.0",
    "source": {"kind": "simulated", "profile": "v0.18.0", "sha256": "a" * 64},
}
OTHER_BUILD: dict[str, Any] = {
    "name": "v0.19.1",
    "version": "v0.19.1",
    "source": {"kind": "simulated", "profile": "v0.19.1", "sha256": "b" * 64},
}
RECIPE: dict[str, Any] = {
    "name": "small",
    "build_kind": "simulated",
    "model": "any/model",
    "hardware": "simulated",
    "time_compression": 4.0,
}
WORKLOAD: dict[str, Any] = {
    "name": "tiny",
    "prefix_tokens": 64,
    "suffix_tokens": 32,
    "output_tokens": 4,
    "concurrency": 2,
    "requests": 2,
    "warmup_requests": 2,
}
COMPARISON: dict[str, Any] = {
    "kind": "comparison",
    "base": "v0.18.0",
    "head": "v0.19.1",
    "recipe": "small",
    "workload": "tiny",
    "blocks": 1,
}
ENROL: dict[str, Any] = {
    "agent_version": "1",
    "name": "node1",
    "hostname": "node1.example",
    "hardware": ["simulated"],
    "build_kinds": ["simulated"],
    "slots": 2,
}
BOOT = "boot_0123456789"
HEARTBEAT: dict[str, Any] = {"agent_version": "1", "boot_id": BOOT, "disk_free_bytes": 10**12}


class StillClock:
    """A clock that stands until it is moved: what ends while it stands was not ended by a timeout."""

    def __init__(self) -> None:
        self.at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        self.monotonic = 1000.0

    def now(self) -> datetime:
        return self.at

    def monotonic_s(self) -> float:
        return self.monotonic

    def move(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)
        self.monotonic += seconds
