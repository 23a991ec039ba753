"""A bisect in a workshop: builds with a truth, a runner that works, and the planner between them, round after round."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import mean
from typing import Any

from service.actions import bisect, catalog, plan
from service.actions.bisect_views import BisectView
from service.contract import canonical
from service.contract.failures import Failure, FailureClass
from service.contract.lease import Lease
from service.contract.requests import BisectRequest
from service.contract.upload import Completed, Scored, Unscored
from service.domain.bisect import Answer, Decision, Evidence, Finding, Forecast, Order, Phase, Picture
from service.domain.states import BISECT, is_final
from service.store import guards
from service.store.tables import Bisect
from tests.clocks import SimulatedClock
from tests.workshop import ADA, Package, RunnerLife, Workshop, build, package

LINEUP = ("0.18.0", "0.18.1", "0.19.0", "0.19.1", "0.20.0", "0.21.0")
Truth = Mapping[str, float | FailureClass]
"""By name of a build: the time of its steps in ms, or how it fails."""
MAX_ROUNDS = 200
SECONDS_A_LAUNCH = 30.0
QUESTIONS = 100


def slow_from(first_bad: str, *, good_ms: float = 20.0, bad_ms: float = 29.0) -> dict[str, float | FailureClass]:
    """One step: every version before ``first_bad`` takes ``good_ms``, it and every later one ``bad_ms``."""
    names = [f"v{version}" for version in LINEUP]
    at = names.index(first_bad)
    return {name: good_ms if i < at else bad_ms for i, name in enumerate(names)}


def stock_lineup(shop: Workshop) -> None:
    """Register the builds of the lineup, the newest first, beside the workshop's own."""
    for version in reversed(LINEUP):
        catalog.register_build(shop.ctx, ADA, build(version))


@dataclass
class Bisecting:
    """Bisects and who works on them. A launch's noise is fixed by its job's seed: within half a percent."""

    shop: Workshop
    runner: RunnerLife
    truth: Truth
    slots: int = 2
    right: Mapping[str, int] | None = None
    """How many of a hundred questions a build answers rightly, plus or minus one; None: the questions are not asked."""
    made: dict[float, Package] = field(default_factory=dict)

    def start(self, key: str | None = None, **more: Any) -> BisectView:
        asked = {"good": "v0.18.0", "bad": "v0.21.0", "recipe": "plain", "workload": "tiny", **more}
        self._pass(1)  # the older goes first
        return bisect.start_bisect(self.shop.ctx, ADA, BisectRequest.model_validate(asked), key)

    def view(self, bisect_id: str) -> BisectView:
        return bisect.get_bisect(self.shop.ctx, bisect_id)

    def lease_all(self) -> list[Lease]:
        """What the runner is given now, on every slot."""
        found = [self.shop.lease(self.runner, slot) for slot in range(self.slots)]
        return [lease for lease in found if lease is not None]

    def answer(self, leased: Lease) -> None:
        """End an attempt as the truth says."""
        self._pass(SECONDS_A_LAUNCH / self.slots)
        truth = self.truth[leased.build.name]
        if isinstance(truth, FailureClass):
            self.shop.fail(leased, truth, f"{leased.build.name} does not run")
        else:
            made = self._package(round(truth * (1 + (leased.seed % 11 - 5) / 1000), 3))
            self.shop.finish(leased, made if leased.evaluation is None else self._answered(made, leased))

    def step(self) -> list[Lease]:
        """One round: plan, lease what there is, end it; return what was leased."""
        plan.plan(self.shop.ctx)
        leased = self.lease_all()
        for one in leased:
            self.answer(one)
        return leased

    def to_the_end(self, bisect_id: str) -> BisectView:
        """Plan and work until the bisect has ended; it must."""
        for _ in range(MAX_ROUNDS):
            plan.plan(self.shop.ctx)
            with self.shop.ctx.store.read() as session:
                row = guards.fresh(session, Bisect, bisect_id)
            assert row is not None
            if is_final(BISECT, row.state):
                return self.view(bisect_id)
            leased = self.lease_all()
            assert leased, f"nothing to do, and not there yet: {self.view(bisect_id).sentence}"
            for one in leased:
                self.answer(one)
        raise AssertionError(f"not there after {MAX_ROUNDS} rounds: {self.view(bisect_id).sentence}")

    def _pass(self, seconds: float) -> None:
        clock = self.shop.ctx.clock
        assert isinstance(clock, SimulatedClock)
        clock.advance(seconds)

    def _package(self, step_ms: float) -> Package:
        if step_ms not in self.made:
            self.made[step_ms] = package(step_ms)
        return self.made[step_ms]

    def _answered(self, made: Package, leased: Lease) -> Package:
        if self.right is None:
            failure = Failure(failure_class=FailureClass.EVALUATION, step="evaluate", message="no questions here")
            return replace(made, body=_with_evaluation(made, Unscored(failure=failure)))
        right = self.right[leased.build.name] + leased.seed % 3 - 1
        lines = [
            {"index": index, "question": "?", "target": "#### 1", "response": f"#### {int(index < right)}"}
            for index in range(QUESTIONS)
        ]
        data = b"\n".join(json.dumps(line).encode() for line in lines)
        samples = canonical.digest_bytes(data)
        said = Scored(
            label="test questions",
            questions="1" * 64,
            shots="2" * 64,
            n=QUESTIONS,
            samples=samples,
            lm_eval_version="0",
            duration_s=1.0,
        )
        return Package({**made.files, "samples.jsonl": data}, _with_evaluation(made, said))


def _with_evaluation(made: Package, said: Scored | Unscored) -> Completed:
    launch = made.body.launch.model_copy(update={"evaluation": said})
    return made.body.model_copy(update={"launch": launch})


def halving(evidence: Evidence) -> Decision:
    """An engine that believes every launch: ends, halving, one block of proof. To test what is around the engine."""
    values: dict[int, list[float]] = {}
    for outcome in evidence.outcomes:
        if outcome.value is not None:
            values.setdefault(outcome.version, []).append(outcome.value)
    ends = (0, len(evidence.names) - 1)
    asked = {pending.phase for pending in evidence.pending}
    if not all(end in values for end in ends):
        return _decided(evidence, Phase.ENDS, () if asked else (_order(Phase.ENDS, *ends),))
    middle = (mean(values[ends[0]]) + mean(values[ends[1]])) / 2
    slow = {version: mean(found) > middle for version, found in values.items()}
    good = max(version for version, is_slow in slow.items() if not is_slow)
    bad = min(version for version, is_slow in slow.items() if is_slow)
    between = [version for version in range(good + 1, bad) if version not in evidence.broken]
    if between:
        free = evidence.free_slots > 0 and Phase.SEARCH not in asked
        probe = Order(Phase.SEARCH, (between[len(between) // 2],), "it halves what is left", 1.0)
        return _decided(evidence, Phase.SEARCH, (probe,) if free else ())
    proofs = [outcome for outcome in evidence.outcomes if outcome.phase is Phase.CONFIRM]
    if len(proofs) < 4:
        free = evidence.free_slots > 0 and Phase.CONFIRM not in asked
        return _decided(evidence, Phase.CONFIRM, (_order(Phase.CONFIRM, good, bad),) if free else ())
    answer = Answer.CONFIRMED if bad == good + 1 else Answer.RANGE
    return _decided(evidence, None, (), _found(evidence, answer, good, bad))


def _order(phase: Phase, good: int, bad: int) -> Order:
    return Order(phase, (good, bad, bad, good), "both, interleaved")


def _found(evidence: Evidence, answer: Answer, good: int, bad: int) -> Finding:
    skipped = tuple(sorted(evidence.broken))
    counts = {phase: sum(one.phase is phase for one in evidence.outcomes) for phase in Phase}
    sentence = f"It is {evidence.names[bad]}."
    return Finding(
        answer, good, bad, tuple(range(good, bad)), 1.4, 1.3, 1.5, 0.99, None, None, None, skipped, counts, sentence
    )


def _decided(
    evidence: Evidence, phase: Phase | None, orders: tuple[Order, ...], finding: Finding | None = None
) -> Decision:
    steps = len(evidence.names) - 1
    picture = Picture(0.0, (1 / steps,) * steps)
    sentence = finding.sentence if finding else f"{len(evidence.outcomes)} launches are known."
    return Decision(phase, orders, finding, picture, Forecast(1, 2, 3), sentence)
