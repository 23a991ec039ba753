"""Whole bisects on a bench with a known truth, seeded: how often they are right, and what they cost."""

from collections import Counter
from collections.abc import Iterable
from statistics import mean

import numpy as np
import pytest

from service.domain.bisect import Aim, Answer, Finding, Phase
from tests.bisects import NAMES, Bench, Measure, levels, replayed, steps

PUBLISHED = steps(12, 19.9, {2: 1.47, 8: 1.08})
"""The story of vLLM issue 45943: v0.19.0 brought 47 %, v0.22.0 another 8 %."""

LONG = tuple(f"v{number}" for number in range(64))
LOWER = Aim(lower_better=True)
TWO_SLOTS = ("slot_a", "slot_b")
Place = tuple[Answer, int | None, int | None]


def run(
    seeds: Iterable[int],
    measure: Measure,
    aim: Aim = LOWER,
    names: tuple[str, ...] = NAMES,
    crashing: Iterable[int] = (),
    slots: tuple[str, ...] = TWO_SLOTS,
) -> list[tuple[Bench, Finding]]:
    found = []
    for seed in seeds:
        bench = Bench(names, aim, measure, np.random.default_rng(seed), frozenset(crashing), slots)
        found.append((bench, bench.run()))
    return found


def places(found: list[tuple[Bench, Finding]]) -> Counter[Place]:
    return Counter((finding.answer, finding.last_good, finding.first_bad) for _, finding in found)


def searched(finding: Finding) -> int:
    return finding.launches[Phase.ENDS] + finding.launches[Phase.SEARCH]


def covered(found: list[tuple[Bench, Finding]], truth: float) -> int:
    return sum(f.low is not None and f.high is not None and f.low <= truth <= f.high for _, f in found)


def test_the_published_story_is_found_whatever_the_second_change() -> None:
    found = run(range(100), levels(PUBLISHED, 0.01))
    assert places(found)[(Answer.CONFIRMED, 1, 2)] >= 99
    assert covered(found, 1.47) >= 88
    assert mean(searched(finding) for _, finding in found) < 9
    assert max(bench.launches() for bench, _ in found) <= 24


def test_a_moved_truth_moves_the_finding() -> None:
    found = run(range(40), levels(steps(12, 20, {7: 1.12}), 0.01))
    assert places(found) == {(Answer.CONFIRMED, 6, 7): 40}
    assert covered(found, 1.12) >= 34


@pytest.mark.parametrize("sd", [0.006, 0.01])
def test_nothing_is_found_where_nothing_is(sd: float) -> None:
    found = run(range(100), levels([20.0] * 12, sd))
    assert places(found) == {(Answer.NOT_REPRODUCED, None, None): 100}
    assert mean(bench.launches() for bench, _ in found) <= 6
    assert all(finding.candidates == () for _, finding in found)


def test_builds_that_do_not_start_are_skipped_and_the_step_elsewhere_is_found() -> None:
    found = run(range(30), levels(PUBLISHED, 0.01), crashing=(4, 5, 6))
    assert places(found) == {(Answer.CONFIRMED, 1, 2): 30}
    assert all(finding.skipped and set(finding.skipped) <= {4, 5, 6} for _, finding in found)


def test_a_step_among_builds_that_do_not_start_is_a_range_around_them() -> None:
    found = run(range(30), levels(steps(12, 20, {5: 1.3}), 0.01), crashing=(4, 5, 6))
    assert places(found) == {(Answer.RANGE, 3, 7): 30}
    assert all(finding.candidates == (3, 4, 5, 6) and finding.skipped == (4, 5, 6) for _, finding in found)


def test_accuracies_are_searched_as_well() -> None:
    def accuracy(rng: np.random.Generator, version: int, _: str) -> float:
        return float((0.92 if version < 4 else 0.80) + rng.normal(0, 0.01))

    found = run(range(40), accuracy, Aim(lower_better=False))
    assert places(found)[(Answer.CONFIRMED, 3, 4)] >= 39


def test_slots_that_differ_by_more_than_the_noise_do_not_lead_astray() -> None:
    found = run(range(30), levels(PUBLISHED, 0.01, slot_sd=0.03))
    assert places(found) == {(Answer.CONFIRMED, 1, 2): 30}
    assert covered(found, 1.47) >= 25


def test_of_two_equal_changes_one_is_named() -> None:
    found = run(range(30), levels(steps(12, 20, {3: 1.2, 8: 1.2}), 0.01))
    named = places(found)
    assert named[(Answer.CONFIRMED, 2, 3)] + named[(Answer.CONFIRMED, 7, 8)] == 30


def test_a_change_of_three_noises_in_64_versions_is_found_in_twenty_launches() -> None:
    """Where it isn't, it is called undecided: nobody else is named."""
    aim = Aim(lower_better=True, max_launches=60)
    found = run(range(40), levels(steps(64, 20, {41: 1.03}), 0.01), aim, LONG, slots=("slot_a",))
    named = places(found)
    assert named[(Answer.CONFIRMED, 40, 41)] >= 38
    assert not {place[2] for place in named} - {41, None}
    assert mean(searched(finding) for _, finding in found) <= 20


def test_a_second_slot_saves_time_for_a_few_launches_more() -> None:
    aim = Aim(lower_better=True, max_launches=60)
    measure = levels(steps(64, 20, {41: 1.05}), 0.01)
    one = run(range(15), measure, aim, LONG, slots=("slot_a",))
    two = run(range(15), measure, aim, LONG)
    for found in (one, two):
        assert places(found) == {(Answer.CONFIRMED, 40, 41): 15}
    assert mean(bench.at for bench, _ in two) < 0.75 * mean(bench.at for bench, _ in one)
    assert mean(bench.launches() for bench, _ in two) < 1.25 * mean(bench.launches() for bench, _ in one)


def test_forecasts_hold_and_every_decision_can_be_replayed() -> None:
    found = run(range(10), levels(PUBLISHED, 0.01)) + run(range(10), levels([20.0] * 12, 0.01))
    right = []
    for bench, _ in found:
        assert replayed(bench)
        for known, decision in bench.steps[:-1]:
            left = bench.launches() - len(known.outcomes)
            right.append(decision.forecast.launches_low <= left <= decision.forecast.launches_high)
    assert mean(right) >= 0.9
