"""A proof: blocks of fresh launches of two neighbours, in rounds."""

from collections.abc import Iterator
from dataclasses import dataclass

from service.domain.compare import Comparison
from service.domain.evidence import Aim, Evidence, Outcome, Pending, Phase
from service.domain.finding import paired
from service.domain.reading import Group, Line


@dataclass(frozen=True)
class Trial:
    """The blocks that were ordered of one pair; ``running`` says that some of their launches have not ended."""

    group: Group
    blocks: frozenset[int]
    running: bool

    def is_over(self, aim: Aim) -> bool:
        """Return whether its round is complete, so that it can be judged."""
        return not self.running and self.missing(aim) == aim.confirm_blocks

    def missing(self, aim: Aim) -> int:
        """Return how many blocks its round lacks; a complete one is followed by a whole new one, unless it runs."""
        lacking = -len(self.blocks) % aim.confirm_blocks
        return lacking if lacking or self.running else aim.confirm_blocks

    def others(self, evidence: Evidence) -> Iterator[Outcome]:
        """Yield the outcomes that are not of this trial."""
        return (o for o in evidence.outcomes if o.phase is not Phase.CONFIRM or o.block not in self.blocks)

    def comparison(self, evidence: Evidence) -> Comparison:
        """Return bad over good by this trial's launches alone."""
        return paired(evidence, Phase.CONFIRM, self.group.good, self.group.bad)


def latest(evidence: Evidence, line: Line) -> Trial | None:
    """Return the trial of the pair whose block was ordered last; None if there is none, or no longer a pair."""
    versions: dict[int, set[int]] = {}
    launches: list[Outcome | Pending] = [*evidence.outcomes, *evidence.pending]
    for launch in launches:
        if launch.phase is Phase.CONFIRM:
            versions.setdefault(launch.block, set()).add(launch.version)
    pairs = {block: Group(min(two), max(two)) for block, two in versions.items() if len(two) == 2}
    if not pairs:
        return None
    group = pairs[max(pairs)]
    if group not in line.groups:
        return None
    blocks = frozenset(block for block, pair in pairs.items() if pair == group)
    running = any(launch.phase is Phase.CONFIRM and launch.block in blocks for launch in evidence.pending)
    return Trial(group, blocks, running)
