"""One decision at a time: phases, stop rules, budgets, and what is promised of every decision."""

import json
import math
from dataclasses import asdict, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.domain.bisect import Aim, Answer, Decision, Evidence, Outcome, Pending, Phase, decide

NAMES = ("v1", "v2", "v3", "v4", "v5", "v6")
LOWER = Aim(lower_better=True)
ABBA = (0, 5, 5, 0)
NOISE = (1.003, 0.997, 1.004, 0.996, 1.001, 0.999, 1.002, 0.998)


def block(number: int, phase: Phase, versions: tuple[int, ...], values: tuple[float | None, ...]) -> list[Outcome]:
    return [
        Outcome(version, value, phase, number, position, "slot_a")
        for position, (version, value) in enumerate(zip(versions, values, strict=True))
    ]


def evidence(*outcomes: list[Outcome], **changes: object) -> Evidence:
    flat = tuple(outcome for part in outcomes for outcome in part)
    number = 1 + max((outcome.block for outcome in flat), default=-1)
    known = Evidence(NAMES, flat, (), frozenset(), 2, LOWER, cost_s=60.0, next_block=number)
    return replace(known, **changes)  # type: ignore[arg-type]


def at(level: float, number: int = 0) -> float:
    return level * NOISE[number % len(NOISE)]


SLOW = block(0, Phase.ENDS, ABBA, (at(20, 0), at(30, 1), at(30, 2), at(20, 3)))
SEARCHED = [
    *block(1, Phase.SEARCH, (2,), (at(20, 4),)),
    *block(2, Phase.SEARCH, (3,), (at(30, 5),)),
    *block(3, Phase.SEARCH, (3,), (at(30, 6),)),
]
PAIR = (2, 3, 3, 2)
MIRRORED = (3, 2, 2, 3)


def proof(number: int, bad: float = 30.0) -> list[Outcome]:
    return block(number, Phase.CONFIRM, PAIR, (at(20, number), at(bad, number + 1), at(bad, number + 2), at(20, 0)))


def test_the_ends_come_first_in_one_block_on_one_slot() -> None:
    decision = decide(evidence())
    assert decision.phase is Phase.ENDS
    assert [(order.phase, order.versions) for order in decision.orders] == [(Phase.ENDS, ABBA)]
    assert decide(evidence(free_slots=0)).orders == ()


def test_a_second_slot_searches_as_soon_as_the_ends_are_clearly_apart() -> None:
    pending = (Pending(5, Phase.ENDS, 0), Pending(0, Phase.ENDS, 0))
    apart = decide(evidence(SLOW[:2], pending=pending, free_slots=1))
    assert apart.phase is Phase.ENDS
    assert [order.phase for order in apart.orders] == [Phase.SEARCH]
    close = block(0, Phase.ENDS, (0, 5), (20.0, 20.2))
    assert decide(evidence(close, pending=pending, free_slots=1)).orders == ()
    assert decide(evidence(SLOW[:1], pending=(*pending, pending[0]), free_slots=1)).orders == ()


def test_ends_that_are_not_clear_are_measured_again_at_most_three_times() -> None:
    unclear = (20.0, 20.9, 20.1, 19.9)
    found = [block(i, Phase.ENDS, ABBA, unclear) for i in range(3)]
    for blocks in (1, 2):
        decision = decide(evidence(*found[:blocks]))
        assert decision.phase is Phase.ENDS
        assert [order.versions for order in decision.orders] == [ABBA]
    last = decide(evidence(*[block(i, Phase.ENDS, ABBA, (20.0, 22.0, 20.0, 21.5)) for i in range(3)]))
    assert last.finding is not None
    assert last.finding.answer is Answer.INCONCLUSIVE
    assert "would be a guess" in last.sentence


@pytest.mark.parametrize(("level", "words"), [(20.0, "Not reproduced: v6 is not worse"), (15.0, "better than v1")])
def test_no_change_and_an_improvement_blame_nobody(level: float, words: str) -> None:
    ends = [block(i, Phase.ENDS, ABBA, (at(20, i), at(level, 1), at(level, 2), at(20, 3))) for i in range(2)]
    finding = decide(evidence(*ends)).finding
    assert finding is not None
    assert finding.answer is Answer.NOT_REPRODUCED
    assert (finding.last_good, finding.first_bad, finding.candidates, finding.ratio) == (None, None, (), None)
    assert words in finding.sentence
    assert finding.ends_low is not None


@pytest.mark.parametrize("slow", [33.0, 40.0, 60.0, 100.0, 1000.0])
@pytest.mark.parametrize("position", range(4))
def test_one_slow_launch_at_the_ends_never_makes_them_alike(slow: float, position: int) -> None:
    values = [at(20, 0), at(31.6, 1), at(31.6, 2), at(20, 3)]
    values[position] = slow
    found = decide(evidence(block(0, Phase.ENDS, ABBA, tuple(values))))
    assert found.finding is None, found.sentence
    assert found.orders, "another block, or the search"


def test_the_search_ends_with_two_blocks_of_the_neighbours_on_both_slots() -> None:
    decision = decide(evidence(SLOW, SEARCHED))
    assert decision.phase is Phase.CONFIRM
    assert [order.versions for order in decision.orders] == [PAIR, MIRRORED]
    assert decision.picture.steps[2] > 0.95
    assert "v3 → v4" in decision.sentence


def test_one_free_slot_proves_one_block_after_the_other() -> None:
    first = decide(evidence(SLOW, SEARCHED, free_slots=1))
    assert [order.versions for order in first.orders] == [PAIR]
    running = tuple(Pending(version, Phase.CONFIRM, 4) for version in PAIR)
    assert decide(evidence(SLOW, SEARCHED, pending=running, next_block=5, free_slots=0)).orders == ()
    beside = decide(evidence(SLOW, SEARCHED, pending=running, next_block=5, free_slots=1))
    assert [order.versions for order in beside.orders] == [MIRRORED]
    after = decide(evidence(SLOW, SEARCHED, proof(4), free_slots=2))
    assert [order.versions for order in after.orders] == [MIRRORED]


def test_a_proof_makes_the_finding_and_its_size_comes_from_the_proof_alone() -> None:
    found = decide(evidence(SLOW, SEARCHED, proof(4, 28.0), proof(5, 28.0))).finding
    assert found is not None
    assert found.answer is Answer.CONFIRMED
    assert (found.last_good, found.first_bad, found.candidates) == (2, 3, (2,))
    assert found.ratio == pytest.approx(1.4, rel=0.01)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 1.4 < found.high
    assert found.ends_ratio == pytest.approx(1.5, rel=0.01)
    assert found.launches == {Phase.ENDS: 4, Phase.SEARCH: 3, Phase.CONFIRM: 8}
    assert found.confidence is not None
    assert found.confidence > 0.95
    assert "v4 is the first bad build" in found.sentence


@pytest.mark.parametrize("bad", [20.0, 22.0, 18.0])
def test_a_proof_that_shows_nothing_or_too_little_goes_back_to_the_search_with_its_launches(bad: float) -> None:
    decision = decide(evidence(SLOW, SEARCHED, proof(4, bad), proof(5, bad)))
    assert decision.finding is None
    assert decision.phase is Phase.SEARCH
    assert decision.orders


def test_a_second_round_on_the_same_pair_is_read_with_the_first() -> None:
    """The first round is too noisy to prove the change, and the posterior still points at the pair."""
    noisy = [
        *block(4, Phase.CONFIRM, PAIR, (20.0, 30.0, 22.0, 27.0)),
        *block(5, Phase.CONFIRM, PAIR, (26.0, 30.0, 31.0, 20.0)),
    ]
    again = decide(evidence(SLOW, SEARCHED, SEARCHED, noisy))
    assert again.finding is None
    later = decide(evidence(SLOW, SEARCHED, SEARCHED, noisy, proof(6), proof(7)))
    assert later.finding is not None
    assert later.finding.launches[Phase.CONFIRM] == 16
    assert "from 16 fresh launches" in later.finding.sentence


def test_steps_between_broken_builds_are_a_range_with_the_pair_around_them() -> None:
    searched = [*block(1, Phase.SEARCH, (1,), (at(20, 4),)), *block(2, Phase.SEARCH, (4,), (at(30, 5),))]
    outer = (1, 4, 4, 1)
    broken = frozenset({2, 3})
    decision = decide(evidence(SLOW, searched, broken=broken))
    assert [order.versions for order in decision.orders] == [outer, (4, 1, 1, 4)]
    shares = decision.picture.steps[1:4]
    assert max(shares) - min(shares) < 1e-12
    values = (at(20, 0), at(30, 1), at(30, 2), at(20, 3))
    blocks = [block(number, Phase.CONFIRM, outer, values) for number in (3, 4)]
    finding = decide(evidence(SLOW, searched, *blocks, broken=broken)).finding
    assert finding is not None
    assert finding.answer is Answer.RANGE
    assert (finding.last_good, finding.first_bad, finding.candidates) == (1, 4, (1, 2, 3))
    assert finding.skipped == (2, 3)
    assert "v3 and v4 could not be measured and are not blamed" in finding.sentence


def test_a_neighbour_that_breaks_while_it_is_proven_widens_the_range() -> None:
    half = proof(4)[:1]
    decision = decide(evidence(SLOW, SEARCHED, half, broken=frozenset({2})))
    assert decision.phase in (Phase.SEARCH, Phase.CONFIRM)
    assert all(2 not in order.versions for order in decision.orders)


def test_a_build_whose_launches_give_no_value_twice_is_skipped_and_one_that_does_once_is_not() -> None:
    once = decide(evidence(SLOW, block(1, Phase.SEARCH, (2,), (None,))))
    assert once.orders[0].versions == (2,)
    twice = decide(evidence(SLOW, block(1, Phase.SEARCH, (2,), (None,)), block(2, Phase.SEARCH, (2,), (None,))))
    assert all(2 not in order.versions for order in twice.orders)
    mostly_fine = [*SEARCHED, *block(4, Phase.SEARCH, (3,), (None,)), *block(5, Phase.SEARCH, (3,), (None,))]
    assert [order.versions for order in decide(evidence(SLOW, mostly_fine)).orders] == [PAIR, MIRRORED]


@pytest.mark.parametrize(("end", "role"), [(0, "v1, the good end"), (5, "v6, the bad end")])
def test_an_end_that_can_not_be_measured_ends_it(end: int, role: str) -> None:
    finding = decide(evidence(broken=frozenset({end}))).finding
    assert finding is not None
    assert finding.answer is Answer.INCONCLUSIVE
    assert role in finding.sentence


def test_the_search_leaves_enough_launches_for_a_proof() -> None:
    tight = replace(LOWER, max_launches=12)
    found = decide(evidence(SLOW, aim=tight)).finding
    assert found is not None
    assert found.answer is Answer.INCONCLUSIVE
    assert len(found.candidates) > 1
    assert decide(evidence(SLOW, aim=replace(LOWER, max_launches=13))).orders
    spent = decide(evidence(SLOW, SEARCHED, aim=replace(LOWER, max_launches=14))).finding
    assert spent is not None
    assert spent.candidates == (2,)
    assert "too many to prove v3 → v4" in spent.sentence


def test_launches_that_vanish_are_bounded() -> None:
    found = decide(evidence(SLOW, next_block=40)).finding
    assert found is not None
    assert found.answer is Answer.INCONCLUSIVE


def test_two_builds_need_no_search() -> None:
    ends = block(0, Phase.ENDS, (0, 1, 1, 0), (at(20, 0), at(30, 1), at(30, 2), at(20, 3)))
    decision = decide(evidence(ends, names=("a", "b")))
    assert decision.phase is Phase.CONFIRM
    assert [order.versions for order in decision.orders] == [(0, 1, 1, 0), (1, 0, 0, 1)]


def test_the_size_between_two_builds_is_not_that_of_their_launches_as_ends() -> None:
    pair = (0, 1, 1, 0)
    ends = block(0, Phase.ENDS, pair, (at(20, 0), at(30, 1), at(30, 2), at(20, 3)))
    proofs = [block(i, Phase.CONFIRM, pair, (at(20, 0), at(26, 1), at(26, 2), at(20, 3))) for i in (1, 2)]
    finding = decide(evidence(ends, *proofs, names=("a", "b"))).finding
    assert finding is not None
    assert finding.answer is Answer.CONFIRMED
    assert finding.ratio == pytest.approx(1.3, rel=0.01)
    assert "from 8 fresh launches" in finding.sentence


def test_the_confidence_is_that_before_the_proof_whatever_the_proof_shows() -> None:
    found = [decide(evidence(SLOW, SEARCHED, proof(4, bad), proof(5, bad))).finding for bad in (27.0, 30.0, 36.0)]
    confidences = {finding.confidence for finding in found if finding is not None}
    assert len(found) == 3
    assert None not in found
    assert len(confidences) == 1


def test_ends_that_differed_by_chance_are_given_up_when_the_search_finds_them_alike() -> None:
    ends = block(0, Phase.ENDS, ABBA, (20.0, 21.2, 21.0, 20.1))
    assert decide(evidence(ends)).phase is Phase.SEARCH
    alike = [Outcome(5 * (i % 2), at(20.5, i), Phase.SEARCH, 1 + i, 0, "slot_a") for i in range(16)]
    finding = decide(evidence(ends, alike)).finding
    assert finding is not None
    assert finding.answer is Answer.NOT_REPRODUCED


def test_a_free_slot_waits_when_what_is_pending_will_tell_nearly_all() -> None:
    ends = block(0, Phase.ENDS, (0, 2, 2, 0), (at(20, 0), at(30, 1), at(30, 2), at(20, 3)))
    known = evidence(ends, names=("a", "b", "c"), free_slots=1)
    assert [order.versions for order in decide(known).orders] == [(1,)]
    waiting = replace(known, pending=(Pending(1, Phase.SEARCH, 1),), next_block=2)
    assert decide(waiting).orders == ()
    assert decide(waiting).phase is Phase.SEARCH


def test_an_accuracy_of_nothing_right_is_a_value_too() -> None:
    ends = block(0, Phase.ENDS, ABBA, (0.92, 0.0, 0.0, 0.93))
    decision = decide(evidence(ends, aim=Aim(lower_better=False)))
    assert decision.phase is Phase.SEARCH
    assert decision.picture.none < 0.01


def test_reasons_say_what_a_probe_decides() -> None:
    decision = decide(evidence(SLOW, free_slots=1))
    assert decision.orders[0].reason.startswith(("v3 splits what is left best: 0.", "v4 splits what is left best: 0."))
    assert "if it is bad the step is one of" in decision.orders[0].reason
    assert decision.orders[0].bits is not None


values = st.none() | st.floats(0.001, 1e4) | st.sampled_from([20.0, 20.1, 30.0, 30.2, 0.0])
outcomes = st.lists(
    st.builds(
        Outcome,
        version=st.integers(0, 5),
        value=values,
        phase=st.sampled_from(Phase),
        block=st.integers(0, 6),
        position=st.integers(0, 3),
        slot=st.sampled_from(["slot_a", "slot_b"]),
    ),
    max_size=14,
)
pending = st.lists(
    st.builds(Pending, version=st.integers(0, 5), phase=st.sampled_from(Phase), block=st.integers(0, 8)), max_size=3
)
anything = st.builds(
    Evidence,
    names=st.just(NAMES),
    outcomes=outcomes.map(tuple),
    pending=pending.map(tuple),
    broken=st.frozensets(st.integers(0, 5), max_size=3),
    free_slots=st.integers(0, 3),
    aim=st.builds(Aim, lower_better=st.booleans(), max_launches=st.integers(4, 40)),
    next_block=st.integers(0, 9),
)


@given(anything)
@settings(max_examples=150, deadline=None)
def test_every_decision_keeps_the_promises(known: Evidence) -> None:
    decision = decide(known)
    assert math.isclose(decision.picture.none + math.fsum(decision.picture.steps), 1, abs_tol=1e-9)
    assert len(decision.picture.steps) == len(NAMES) - 1
    assert (decision.phase is None) == (decision.finding is not None)
    assert len(decision.orders) <= known.free_slots
    assert decision.forecast.launches_low <= decision.forecast.launches <= decision.forecast.launches_high
    launches = sum(len(order.versions) for order in decision.orders)
    if launches:
        assert launches + len(known.outcomes) + len(known.pending) <= known.aim.max_launches
    ordered = {version for order in decision.orders for version in order.versions}
    assert not ordered & known.broken
    if decision.finding is not None:
        _check_finding(known, decision)
    elif known.free_slots and not known.pending:
        assert decision.orders, "nothing is pending, nothing is ordered, and there is no finding"
    json.dumps(asdict(decision), allow_nan=False, default=str)


def _check_finding(known: Evidence, decision: Decision) -> None:
    finding = decision.finding
    assert finding is not None
    assert sum(finding.launches.values()) == len(known.outcomes)
    assert known.broken <= set(finding.skipped)
    named = {finding.last_good, finding.first_bad} - {None}
    assert not named & set(finding.skipped)
    assert all(0 <= step < len(NAMES) - 1 for step in finding.candidates)
    if finding.answer in (Answer.CONFIRMED, Answer.RANGE):
        assert finding.last_good is not None
        assert finding.first_bad is not None
        assert finding.candidates == tuple(range(finding.last_good, finding.first_bad))
        assert (finding.answer is Answer.CONFIRMED) == (len(finding.candidates) == 1)
    else:
        assert named == set()


@given(anything)
@settings(max_examples=60, deadline=None)
def test_equal_evidence_gives_equal_decisions_in_whatever_order_launches_ended(known: Evidence) -> None:
    decision = decide(known)
    assert decide(known) == decision
    assert decide(replace(known, outcomes=known.outcomes[::-1], pending=known.pending[::-1])) == decision


# Two levels with some noise: with wilder values a decision may hang on the last bit of a logarithm.
plausible = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 7)), max_size=8).map(
    lambda drawn: [
        *SLOW,
        *(
            Outcome(version, at(20 if version < 3 else 30, noise), Phase.SEARCH, 1 + i, 0, "slot_a")
            for i, (version, noise) in enumerate(drawn)
        ),
    ]
)


@given(plausible, st.sampled_from([1e-3, 0.25, 3.0, 1e4]))
@settings(max_examples=40, deadline=None)
def test_the_unit_of_the_metric_changes_no_decision(found: list[Outcome], factor: float) -> None:
    scaled = [replace(o, value=None if o.value is None else o.value * factor) for o in found]
    _alike(decide(evidence(found)), decide(evidence(scaled)))


@given(plausible)
@settings(max_examples=40, deadline=None)
def test_a_metric_of_which_more_is_better_is_searched_by_its_inverse(found: list[Outcome]) -> None:
    inverted = [replace(o, value=None if o.value is None else 1 / o.value) for o in found]
    _alike(decide(evidence(found)), decide(evidence(inverted, aim=Aim(lower_better=False))))


def _alike(one: Decision, other: Decision) -> None:
    assert one.phase is other.phase
    assert [(order.phase, order.versions) for order in one.orders] == [(o.phase, o.versions) for o in other.orders]
    assert one.picture.steps == pytest.approx(other.picture.steps, abs=1e-6)
