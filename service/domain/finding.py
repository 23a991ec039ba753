"""A bisect's answer, in numbers and in a sentence.

The size of a finding comes from its confirmation launches alone, through service.domain.compare: a size from the
search that selected it would be too large (the winner's curse).
"""

import math
from collections import Counter
from dataclasses import dataclass

from service.domain.compare import Comparison, Criterion, Method, Observation, Side, Verdict, compare
from service.domain.evidence import Answer, Evidence, Finding, Phase
from service.domain.reading import Group, Line, Reading, positive, usable


@dataclass(frozen=True)
class Ended:
    """What all answers share: the evidence, its line, and how the ends compared."""

    evidence: Evidence
    line: Line
    ends: Comparison

    def finding(
        self,
        answer: Answer,
        sentence: str,
        candidates: tuple[int, ...] = (),
        group: Group | None = None,
        proof: Comparison | None = None,
        confidence: float | None = None,
    ) -> Finding:
        launches = Counter(outcome.phase for outcome in self.evidence.outcomes)
        return Finding(
            answer=answer,
            last_good=group.good if group else None,
            first_bad=group.bad if group else None,
            candidates=group.steps if group else candidates,
            ratio=proof.ratio if proof else None,
            low=proof.low if proof else None,
            high=proof.high if proof else None,
            confidence=confidence,
            ends_ratio=self.ends.ratio,
            ends_low=self.ends.low,
            ends_high=self.ends.high,
            skipped=self.line.skipped,
            launches={phase: launches[phase] for phase in Phase},
            sentence=sentence + self._skipped(),
        )

    def _skipped(self) -> str:
        names = [self.evidence.names[version] for version in self.line.skipped]
        if not names:
            return ""
        return f" {listed(names)} could not be measured and {'is' if len(names) == 1 else 'are'} not blamed."


def paired(evidence: Evidence, phase: Phase, good: int, bad: int) -> Comparison:
    """Return how ``bad`` compares to ``good`` in the blocks of one phase, by their usable launches alone."""
    sides = {good: Side.BASE, bad: Side.HEAD}
    chosen = sorted(
        (o for o in evidence.outcomes if o.phase is phase and o.version in sides and usable(o)),
        key=lambda o: (o.block, o.position, o.version, o.slot, o.value or 0.0),
    )
    observations = [Observation(sides[o.version], positive(evidence, o), o.block, o.slot) for o in chosen]
    aim = evidence.aim
    return compare(observations, Criterion(aim.lower_better, margin=aim.smallest, confidence=aim.confidence))


def proves(proof: Comparison, lower_better: bool, expected: float | None) -> bool:
    """Return whether fresh launches prove a change for the worse that explains half of what the search expected.

    The paired interval has to exclude 1 in the bad direction. ``expected`` is in logs, worse pointing up.
    """
    if proof.method is not Method.BLOCKS or proof.low is None or proof.high is None or proof.ratio is None:
        return False
    if not (proof.low > 1 if lower_better else proof.high < 1):
        return False
    return expected is None or logarithm(proof.ratio, lower_better) >= expected / 2


def rules_out(ended: Ended, limit: float) -> bool:
    """Return whether the ends' interval leaves out that the bad end is worse by ``limit`` (in logs) or more."""
    ends, lower_better = ended.ends, ended.evidence.aim.lower_better
    bound = ends.high if lower_better else ends.low
    return bound is not None and bound > 0 and logarithm(bound, lower_better) < limit


def confirmed(ended: Ended, group: Group, proof: Comparison, confidence: float) -> Finding:
    """Return the finding of a proven step, or, where only broken builds lie inside, of a proven range."""
    evidence = ended.evidence
    good, bad = evidence.names[group.good], evidence.names[group.bad]
    launches, metric = sum(proof.counted), evidence.aim.metric
    size = f"{interval(proof, evidence.aim.confidence)}, from {launches} fresh launches of the two"
    if len(group.steps) == 1:
        answer = Answer.CONFIRMED
        sentence = f"{bad} is the first bad build: against {good}, its predecessor, {metric} changed by {size}."
    else:
        answer = Answer.RANGE
        sentence = (
            f"The change came after {good} and no later than {bad}, in one of {len(group.steps)} steps that can't be "
            f"told apart, as no build between the two can be measured: {metric} changed by {size}."
        )
    sentence += f" Before that proof, the search gave the place a probability of {probability(confidence)}."
    return ended.finding(answer, sentence, group=group, proof=proof, confidence=confidence)


def not_reproduced(ended: Ended) -> Finding:
    """Return the finding that the bad end is not worse than the good end by the smallest change that matters."""
    aim, names, ends = ended.evidence.aim, ended.evidence.names, ended.ends
    good, bad = names[0], names[-1]
    if ends.verdict is Verdict.BETTER:
        sentence = f"{bad} is better than {good}, not worse: {aim.metric} changed by {interval(ends, aim.confidence)}."
    else:
        limit = f"{aim.smallest * 100:.3g} %"
        sentence = f"Not reproduced: {bad} is not worse than {good} in {aim.metric} by as much as {limit}."
        if rules_out(ended, 3 * math.log1p(aim.smallest)):
            sentence += f" {aim.metric} changed by {interval(ends, aim.confidence)}."
        elif ends.low is not None:
            first = f"{sum(ends.counted)} of the {len(ended.evidence.outcomes)} launches"
            sentence += f" The ends' own {first} show {interval(ends, aim.confidence)}; all launches together do not."
    return ended.finding(Answer.NOT_REPRODUCED, sentence + " No build is blamed.")


def inconclusive(ended: Ended, reading: Reading | None, why: str) -> Finding:
    """Return the finding that it could not be decided, with the steps that hold the confidence, likeliest first."""
    candidates: tuple[int, ...] = ()
    sentence = f"Inconclusive: {why}."
    confidence = None
    if reading is not None:
        candidates = leading(reading, ended.evidence.aim.confidence)
        names = ended.evidence.names
        confidence = min(1.0, sum(reading.picture.steps[step] for step in candidates))
        spelt = listed([f"{names[step]} → {names[step + 1]}" for step in candidates[:5]])
        more = f" and {len(candidates) - 5} more" if len(candidates) > 5 else ""
        sentence += f" With probability {probability(confidence)} the step is one of: {spelt}{more}."
    return ended.finding(Answer.INCONCLUSIVE, sentence, candidates=candidates, confidence=confidence)


def leading(reading: Reading, confidence: float) -> tuple[int, ...]:
    """Return the fewest steps that hold ``confidence`` of the probability that there is a step; whole groups."""
    chances = reading.posterior.steps
    groups = sorted(range(len(chances)), key=lambda group: (-round(float(chances[group]), 9), group))
    found: list[int] = []
    held, wanted = 0.0, confidence * float(chances.sum())
    for group in groups:
        if held >= wanted and found:
            break
        held += float(chances[group])
        found += reading.line.groups[group].steps
    return tuple(found)


def interval(comparison: Comparison, confidence: float) -> str:
    """Return a ratio as a signed percentage with its interval: ``+46.6 % (+45.1 % to +48.0 %, 95 % interval)``.

    Launches that all agree, as answers do that are counted, have no interval of their own, and that is said.
    """
    if comparison.ratio is None:
        return "an unknown amount"
    if comparison.low is None or comparison.high is None:
        return percent(comparison.ratio)
    if comparison.low == comparison.high:
        return f"{percent(comparison.ratio)} (no launch differs from another of its build)"
    bounds = f"{percent(comparison.low)} to {percent(comparison.high)}, {confidence * 100:.3g} % interval"
    return f"{percent(comparison.ratio)} ({bounds})"


def percent(ratio: float) -> str:
    """Return a ratio as a signed percentage: 1.466 is +46.6 %."""
    return f"{(ratio - 1) * 100:+.1f} %"


def probability(chance: float) -> str:
    """Return a probability to two places, never rounded up to 1."""
    return "more than 0.99" if chance > 0.99 else f"{chance:.2f}"


def listed(names: list[str]) -> str:
    """Return names as a list in words."""
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def logarithm(ratio: float, lower_better: bool) -> float:
    """Return a ratio in logs, with worse pointing up."""
    return math.log(ratio) if lower_better else -math.log(ratio)
