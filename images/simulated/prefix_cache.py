"""The KV blocks: which are held by running requests, which are idle and can still be hit, least recently used first."""

from collections import OrderedDict
from collections.abc import Sequence


class PrefixCache:
    """Full KV blocks by chained hash, as vLLM V1 keeps them: a block in use is never evicted, an idle one stays
    findable until its room is needed.

    A hash stands for the block's tokens and everything before it. `capacity` is in blocks. The caller guarantees that
    what is held at one time fits (the scheduler reserves room before it admits a request).
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.evictions = 0
        self._held: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def held_blocks(self) -> int:
        """Distinct blocks that running requests hold."""
        return len(self._held)

    def count_hits(self, hashes: Sequence[int], limit: int) -> int:
        """How many leading blocks of a request are here, at most `limit`."""
        held, idle = self._held, self._idle
        hits = 0
        for block in hashes[:limit]:
            if block not in held and block not in idle:
                break
            hits += 1
        return hits

    def acquire(self, hashes: Sequence[int]) -> None:
        """Hold these blocks once more, making room for those that are new."""
        held, idle = self._held, self._idle
        for block in hashes:
            holders = held.get(block, 0)
            if holders == 0 and block in idle:
                del idle[block]
            held[block] = holders + 1
        while idle and len(held) + len(idle) > self.capacity:
            idle.popitem(last=False)
            self.evictions += 1

    def release(self, hashes: Sequence[int]) -> None:
        """Let go of blocks that were acquired; the end of a request is evicted before its beginning, as in vLLM."""
        held, idle = self._held, self._idle
        for block in reversed(hashes):
            holders = held[block] - 1
            if holders:
                held[block] = holders
            else:
                del held[block]
                idle[block] = None

    def forget_idle(self) -> bool:
        """Empty the cache. False, with nothing changed, while a request holds a block (vLLM refuses too)."""
        if self._held:
            return False
        self._idle.clear()
        return True
