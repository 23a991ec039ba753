"""What one step carries: vLLM V1's scheduling, as far as a client can notice it.

Running requests first, in order of admission (a decode takes one token, a prefill what is left of the budget), then
waiting ones, first come first served, while there is room in the batch. A request whose prefill completes in a step
gets its first token at the end of that step. Cached are whole blocks, and never the prompt's last token, so a hit is at
most (prompt − 1) // block · block tokens.
"""

from collections import deque
from dataclasses import dataclass, field

from images.simulated.prefix_cache import PrefixCache


@dataclass(slots=True, eq=False)
class Sequence:
    """One request inside the engine. Counts are tokens; `block_hashes` covers the full blocks of prompt and output;
    `right` is carried through to the log.

    Written by the engine's thread only, once submitted; `cached` is set before the first token is handed out.
    """

    number: int
    prompt_tokens: int
    output_tokens: int
    block_hashes: list[int]
    finish_reason: str
    arrived_ns: int
    right: bool | None = None
    computed: int = 0
    produced: int = 0
    cached: int = 0
    held: int = 0
    first_emit_ns: int = 0
    last_emit_ns: int = 0


@dataclass(slots=True)
class Step:
    """One step: who takes part with how many tokens, and who gets a token at its end."""

    parts: list[tuple[Sequence, int]] = field(default_factory=list)
    emitting: list[Sequence] = field(default_factory=list)
    decoding: int = 0
    context_tokens: int = 0
    prefill_tokens: int = 0


class Scheduler:
    """Decides step after step. Pure: it knows no time and no thread, and must be called from one at a time."""

    def __init__(self, cache: PrefixCache, max_sequences: int, max_step_tokens: int, block_size: int) -> None:
        self.cache = cache
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()
        self.prefix_queries = 0
        self.prefix_hits = 0
        self._max_sequences = max_sequences
        self._max_step_tokens = max_step_tokens
        self._block_size = block_size
        self._reserved_blocks = 0

    def add(self, sequence: Sequence) -> None:
        """Put a new request at the end of the queue."""
        self.waiting.append(sequence)

    def plan_step(self) -> Step | None:
        """The next step, or None when there is nothing to do. Blocks that the step fills can be hit at once."""
        step = Step()
        budget = self._max_step_tokens
        for sequence in self.running:
            budget -= self._schedule(step, sequence, budget)
        while self.waiting and budget > 0 and len(self.running) < self._max_sequences:
            if self._reserved_blocks + self._demand(self.waiting[0]) > self.cache.capacity:
                break
            sequence = self.waiting.popleft()
            self._admit(sequence)
            budget -= self._schedule(step, sequence, budget)
        return step if step.parts else None

    def complete_step(self, step: Step) -> list[Sequence]:
        """Record that the step has run; returns the requests that are finished with it."""
        for sequence, tokens in step.parts:
            sequence.computed += tokens
        finished = []
        for sequence in step.emitting:
            sequence.produced += 1
            if sequence.produced >= sequence.output_tokens:
                finished.append(sequence)
        for sequence in finished:
            self._leave(sequence)
        return finished

    def abort(self, sequence: Sequence) -> bool:
        """Drop a request between two steps. False when it is not here (any more)."""
        if sequence in self.running:
            self._leave(sequence)
            return True
        if sequence in self.waiting:
            self.waiting.remove(sequence)
            return True
        return False

    def usage(self) -> float:
        """The share of KV blocks in use, 0 to 1: the full ones held, and one partly filled for each running request."""
        return min(1.0, (self.cache.held_blocks + len(self.running)) / self.cache.capacity)

    def _demand(self, sequence: Sequence) -> int:
        return -(-(sequence.prompt_tokens + sequence.output_tokens) // self._block_size)

    def _admit(self, sequence: Sequence) -> None:
        limit = (sequence.prompt_tokens - 1) // self._block_size
        hits = self.cache.count_hits(sequence.block_hashes, limit)
        self.cache.acquire(sequence.block_hashes[:hits])
        sequence.held = hits
        sequence.cached = sequence.computed = hits * self._block_size
        self.prefix_queries += sequence.prompt_tokens
        self.prefix_hits += sequence.cached
        self._reserved_blocks += self._demand(sequence)
        self.running.append(sequence)

    def _schedule(self, step: Step, sequence: Sequence, budget: int) -> int:
        known = sequence.prompt_tokens + sequence.produced
        tokens = min(known - sequence.computed, budget)
        if tokens <= 0:
            return 0
        step.parts.append((sequence, tokens))
        if sequence.produced:
            step.decoding += 1
            step.context_tokens += known
        else:
            step.prefill_tokens += tokens
        after = sequence.computed + tokens
        if after == known:
            step.emitting.append(sequence)
        full = after // self._block_size
        if full > sequence.held:
            self.cache.acquire(sequence.block_hashes[sequence.held : full])
            sequence.held = full
        return tokens

    def _leave(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self.cache.release(sequence.block_hashes[: sequence.held])
        self._reserved_blocks -= self._demand(sequence)
