"""The load: token-id prompts with a shared prefix, in a closed loop of fixed concurrency."""

from pydantic import Field, model_validator

from service.contract import canonical
from service.contract.builds import Name, Wire


class Workload(Wire):
    """One load, complete: two runs of equal workloads send the same bytes.

    Lengths are tokens. Every prompt is the shared prefix of ``prefix_tokens`` followed by its own ``suffix_tokens``,
    and asks for exactly ``output_tokens``. A repetition sends ``requests`` of them, never more than ``concurrency`` at
    once, a new one as soon as one ends. Warm-up and every repetition have suffixes of their own, drawn from ``seed``
    with ids in [``vocab_low``, ``vocab_high``), so that no repetition can hit the cache of an earlier one.
    """

    name: Name
    prefix_tokens: int = Field(ge=1, le=2_000_000)
    suffix_tokens: int = Field(ge=1, le=2_000_000)
    output_tokens: int = Field(ge=2, le=1_000_000)
    concurrency: int = Field(ge=1, le=4096)
    requests: int = Field(ge=1, le=100_000)
    warmup_requests: int = Field(ge=1, le=100_000)
    repetitions: int = Field(default=3, ge=3, le=100)
    seed: int = Field(default=0, ge=0, lt=2**32)
    vocab_low: int = Field(default=1000, ge=0)
    vocab_high: int = Field(default=30000, ge=2, le=2**31)

    @model_validator(mode="after")
    def _check(self) -> "Workload":
        if self.vocab_high - self.vocab_low < 2:
            raise ValueError("vocab_high must exceed vocab_low by at least 2")
        if self.requests < self.concurrency:
            raise ValueError("requests must be at least concurrency, or the concurrency is never reached")
        total = self.prefix_tokens + self.suffix_tokens * (self.warmup_requests + self.repetitions * self.requests)
        if total > 200_000_000:
            raise ValueError(f"the prompts would hold {total} tokens; at most 200 million are allowed")
        return self

    @property
    def digest(self) -> str:
        """SHA-256 over everything but the name."""
        return canonical.digest(self.model_dump(mode="json", exclude={"name"}))
