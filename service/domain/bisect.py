"""What a bisect does next: a pure function of what is known, so that a resume is a replay of rows.

1. **Ends.** A block good, bad, bad, good on one slot. Read from these launches alone, so that it stays decided: the
   bad end is worse by no more than the smallest change that matters, with the confidence asked for, and the paired
   interval leaves out three times as much → not reproduced;
   clearly worse, and perhaps by more than the smallest → search; else another block, at most three.
2. **Search.** Single launches where they tell most (service.domain.probe), until the likeliest place of the largest
   change for the worse has brought one with the confidence asked for. Places that only unmeasurable builds separate are
   one. Idle slots may search while the ends are still being measured, once they are clearly apart.
3. **Confirm.** Blocks of A B B A of the nearest measurable builds around that place. Accepted when their paired
   interval excludes 1 in the bad direction and they show half of what the search expected. If not, their launches are
   added to the search's, and it goes on; a second round on the same pair is read together with the first.

Launches of all phases together are bounded, and the search leaves enough for one proof. Launches that vanish (their
job failed, for a reason that doesn't make the build broken) are bounded too: no more orders than launches are made.
"""

from dataclasses import dataclass
from functools import cached_property
from math import log1p

from service.domain import finding as findings
from service.domain import forecast, probe
from service.domain.evidence import (
    Aim,
    Answer,
    Decision,
    Evidence,
    Finding,
    Forecast,
    Order,
    Outcome,
    Pending,
    Phase,
    Picture,
)
from service.domain.finding import Ended
from service.domain.reading import Group, Line, Reading, line, noise, read, usable
from service.domain.trial import Trial, latest

__all__ = [
    "Aim",
    "Answer",
    "Decision",
    "Evidence",
    "Finding",
    "Forecast",
    "Order",
    "Outcome",
    "Pending",
    "Phase",
    "Picture",
    "decide",
]

MAX_ENDS_BLOCKS = 3
_BLOCK = 4
_LEAST_BITS = 0.1
"""While launches are pending, a further probe has to be expected to tell this much; else their results are awaited."""
_WORTH_A_SEARCH = 0.25
"""A change that is clearly one is searched for unless it is three times as likely too small as large enough."""

_RULED_OUT = 3
"""Not reproduced is said only where the ends' interval, too, leaves out a change of this many times the smallest: one
slow launch makes the posterior doubt every change, and the interval so wide that it would hold most of them."""

_CLEARLY_APART = 0.9
"""Less than the confidence of a claim: the search weighs "nothing changed" on, and claims nothing without a proof."""


def decide(evidence: Evidence) -> Decision:
    """Return what follows from ``evidence``: orders for free slots, nothing but patience, or the finding.

    Equal evidence gives equal decisions; a launch's unit, or the order in which launches ended, changes nothing. Needs
    at least two names.
    """
    return _Case(evidence).decision()


@dataclass(frozen=True)
class _Case:
    """One decision: its evidence, and what was read from it."""

    evidence: Evidence

    @cached_property
    def aim(self) -> Aim:
        return self.evidence.aim

    @cached_property
    def line(self) -> Line:
        return line(self.evidence)

    @cached_property
    def last(self) -> int:
        return len(self.evidence.names) - 1

    @cached_property
    def smallest(self) -> float:
        return log1p(self.aim.smallest)

    @cached_property
    def proof(self) -> int:
        return _BLOCK * self.aim.confirm_blocks

    @cached_property
    def left(self) -> int:
        """How many launches may still be ordered."""
        used = len(self.evidence.outcomes) + len(self.evidence.pending)
        return self.aim.max_launches - max(used, self.evidence.next_block)

    @cached_property
    def trial(self) -> Trial | None:
        return latest(self.evidence, self.line)

    @cached_property
    def ended(self) -> Ended:
        return Ended(self.evidence, self.line, findings.paired(self.evidence, Phase.ENDS, 0, self.last))

    @cached_property
    def ends(self) -> Reading:
        """The two ends alone, from the launches of the first phase alone."""
        two = Line(self.line.length, (0, self.last))
        return read(self.evidence, two, (o for o in self.evidence.outcomes if o.phase is Phase.ENDS))

    @cached_property
    def all(self) -> Reading:
        return read(self.evidence, self.line, self.evidence.outcomes)

    @cached_property
    def searched(self) -> Reading:
        """Without the latest trial's own launches: what is known of its place without its proof."""
        trial = self.trial
        return self.all if trial is None else read(self.evidence, self.line, trial.others(self.evidence))

    def decision(self) -> Decision:
        if (lost := self.line.lost_end) is not None:
            role = "good" if lost == 0 else "bad"
            why = f"{self.evidence.names[lost]}, the {role} end, could not be measured"
            return self._end(findings.inconclusive(self.ended, None, why))
        ends_pending = any(launch.phase is Phase.ENDS for launch in self.evidence.pending)
        if ends_pending or not self._ends_are_apart():
            return self._check_ends(ends_pending)
        if self.trial is not None and not self.trial.is_over(self.aim):
            return self._confirm(self.trial.group, self.searched)
        if self.trial is not None and self._is_proven(self.trial):
            return self._accept(self.trial)
        return self._search(self.all)

    # The ends

    def _ends_are_apart(self) -> bool:
        return self.ends.worse() >= _CLEARLY_APART and self.ends.worse(self.smallest) >= _WORTH_A_SEARCH

    def _check_ends(self, pending: bool) -> Decision:
        good, bad = self.evidence.names[0], self.evidence.names[-1]
        if pending:
            early = self._probe_early()
            sentence = f"{good} and {bad} are being measured, to see whether there is anything to find."
            return self._go_on(Phase.ENDS, tuple(early), sentence, self.all)
        measured = len({o.block for o in self.evidence.outcomes if o.phase is Phase.ENDS})
        unchanged = findings.rules_out(self.ended, _RULED_OUT * self.smallest)
        if unchanged and self._is_nothing(self.ends) and self._both_ends():
            return self._end(findings.not_reproduced(self.ended), self.ends)
        size = findings.interval(self.ended.ends, self.aim.confidence)
        differs = f"{self.aim.metric} of {bad} differs from that of {good} by {size}"
        if measured >= MAX_ENDS_BLOCKS or self.left < _BLOCK:
            limit = f"{self.aim.smallest * 100:.3g} %"
            why = f"{differs}: a search for {limit} or more would be a guess"
            return self._end(findings.inconclusive(self.ended, None, why))
        if measured == 0:
            reason = f"{good} and {bad} are measured in turns on one slot: is there anything to find?"
        elif not unchanged and self.ends.worse(self.smallest) < 0.5:
            reason = f"{differs}: too wide to say that nothing changed, another block"
        else:
            chance = findings.probability(self.ends.worse(self.smallest))
            reason = (
                f"{differs}; that it is worse by more than {self.aim.smallest * 100:.3g} % "
                f"has probability {chance}: not clear yet, another block"
            )
        order = Order(Phase.ENDS, (0, self.last, self.last, 0), reason)
        orders = (order,) if self.evidence.free_slots > 0 else ()
        return self._go_on(Phase.ENDS, orders, reason + ("" if measured == 0 else "."), self.all)

    def _is_nothing(self, reading: Reading) -> bool:
        return 1 - reading.worse(self.smallest) >= self.aim.confidence

    def _both_ends(self) -> bool:
        versions = {o.version for o in self.evidence.outcomes if o.phase is Phase.ENDS and usable(o)}
        return versions >= {0, self.last}

    def _probe_early(self) -> list[Order]:
        if self.evidence.free_slots < 1 or not self._both_ends():
            return []
        return self._probes(self.all) if self.ends.worse(self.smallest) >= _CLEARLY_APART else []

    # The search

    def _search(self, reading: Reading) -> Decision:
        waiting = bool(self.evidence.pending)
        best = reading.best
        if not waiting and self._is_nothing(reading):
            return self._end(findings.not_reproduced(self.ended), reading)
        if reading.changed(best) >= self.aim.confidence:
            return self._confirm(self.line.groups[best], reading)
        orders = self._probes(reading)
        if not orders and not waiting and self.evidence.free_slots > 0:
            why = f"{self._spent()}, and that does not leave enough to tell the rest apart"
            return self._end(findings.inconclusive(self.ended, reading, why), reading)
        return self._go_on(Phase.SEARCH, tuple(orders), self._where(reading), reading)

    def _spent(self) -> str:
        return f"{len(self.evidence.outcomes)} of at most {self.aim.max_launches} launches are made"

    def _probes(self, reading: Reading) -> list[Order]:
        most = min(self.evidence.free_slots, self.left - self.proof)
        if most < 1:
            return []
        number = {version: node for node, version in enumerate(self.line.nodes)}
        pending = sorted(number[launch.version] for launch in self.evidence.pending if launch.version in number)
        search = probe.Search(reading.launches, self.line.weights, self.line.nodes, frozenset(self.line.skipped))
        least = _LEAST_BITS if pending else 0.0
        found = probe.choose(search, pending, most, least)
        return [self._probe(reading, one) for one in found]

    def _probe(self, reading: Reading, one: probe.Probe) -> Order:
        version = self.line.nodes[one.node]
        name = self.evidence.names[version]
        likely = findings.leading(reading, 0.99)
        before, after = sum(step < version for step in likely), sum(step >= version for step in likely)
        if before and after:
            reason = (
                f"{name} splits what is left best: {one.bits:.2f} bits; if it is bad the step is one of {before}, "
                f"if not one of {after}"
            )
        else:
            reason = f"{name} is measured to make sure: {one.bits:.2f} bits"
        if any(launch.node == one.node for launch in reading.launches):
            reason += " (again: its launches so far leave a doubt)"
        return Order(Phase.SEARCH, (version,), reason, one.bits)

    def _where(self, reading: Reading) -> str:
        picture, group = reading.picture, self.line.groups[reading.best]
        names = self.evidence.names
        chance = sum(picture.steps[step] for step in group.steps)
        if chance >= 0.5:
            place = f"{names[group.good]} → {names[group.bad]}"
            return f"The step lies in {place} with probability {findings.probability(chance)}."
        likely = findings.leading(reading, self.aim.confidence)
        low, high = min(likely), max(likely) + 1
        return (
            f"{len(likely)} of {self.last} steps are left, between {names[low]} and {names[high]}; no change for the "
            f"worse has probability {picture.none:.2f}."
        )

    # The proof

    def _confirm(self, group: Group, reading: Reading) -> Decision:
        names = self.evidence.names
        good, bad = names[group.good], names[group.bad]
        trial = self.trial if self.trial is not None and self.trial.group == group else None
        blocks = trial.missing(self.aim) if trial else self.aim.confirm_blocks
        running = any(launch.phase is Phase.CONFIRM for launch in self.evidence.pending)
        most = min(blocks, self.evidence.free_slots, max(self.left, 0) // _BLOCK)
        if blocks and self.left < _BLOCK * blocks and not running:
            why = f"{self._spent()}, too many to prove {good} → {bad} with the rest"
            return self._end(findings.inconclusive(self.ended, reading, why), reading)
        place = f"{good} → {bad} brought a change for the worse"
        reason = (
            f"{place} with probability {findings.probability(reading.changed(self.line.groups.index(group)))}: "
            "the two are measured afresh, in turns on one slot, to prove it and to tell its size"
        )
        done = len(trial.blocks) if trial else 0
        orders = tuple(Order(Phase.CONFIRM, _in_turns(group, done + one), reason) for one in range(max(most, 0)))
        return self._go_on(Phase.CONFIRM, orders, self._where(reading), reading)

    def _is_proven(self, trial: Trial) -> bool:
        expected = self.searched.size(self.line.groups.index(trial.group))
        return findings.proves(trial.comparison(self.evidence), self.aim.lower_better, expected)

    def _accept(self, trial: Trial) -> Decision:
        confidence = self.searched.changed(self.line.groups.index(trial.group))
        proof = trial.comparison(self.evidence)
        return self._end(findings.confirmed(self.ended, trial.group, proof, confidence), self.all)

    # What is returned

    def _end(self, found: Finding, reading: Reading | None = None) -> Decision:
        picture = self._picture(reading)
        return Decision(None, (), found, picture, Forecast(0.0, 0.0, 0.0), found.sentence)

    def _picture(self, reading: Reading | None) -> Picture:
        if reading is not None and len(reading.line.nodes) > 1:
            return reading.picture
        return read(self.evidence, Line(self.line.length, tuple(range(self.line.length))), ()).picture

    def _go_on(self, phase: Phase, orders: tuple[Order, ...], sentence: str, reading: Reading) -> Decision:
        return Decision(phase, orders, None, reading.picture, self._forecast(phase, orders, reading), sentence)

    def _forecast(self, phase: Phase, orders: tuple[Order, ...], reading: Reading) -> Forecast:
        ordered = [order.phase for order in orders for _ in order.versions]
        coming = [launch.phase for launch in self.evidence.pending] + ordered
        ends, proof = coming.count(Phase.ENDS), coming.count(Phase.CONFIRM)
        if phase is Phase.CONFIRM:
            return forecast.forecast(len(coming), 0.0, float(max(0, self.proof - proof)) if not proof else 0.0)
        size = reading.size(reading.best)
        distance = size / noise(reading) if size is not None and reading.launches else None
        wanted = forecast.search(probe.uncertainty(reading.posterior), distance)
        if phase is Phase.ENDS:
            return forecast.while_ends(ends, self.ends.worse(self.smallest), wanted, self.proof)
        return forecast.forecast(0.0, wanted, self.proof)


def _in_turns(group: Group, number: int) -> tuple[int, ...]:
    """Return the order of a block: every second one is mirrored, so that what disturbs two blocks at once on one
    machine does not favour one build."""
    first, second = (group.good, group.bad) if number % 2 == 0 else (group.bad, group.good)
    return first, second, second, first
