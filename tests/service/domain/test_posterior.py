"""The posterior over the place of a change, checked against scipy's densities and by property."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from service.domain.posterior import Launch, Posterior, Prior, fit

values = st.floats(-1, 1).map(lambda value: round(value, 3))
launches = st.lists(st.builds(Launch, st.integers(0, 5), values, st.integers(0, 1)), max_size=12)


def by_brute_force(found: list[Launch], steps: int, prior: Prior) -> dict[tuple[int, ...], float]:
    """P(steps) with every hypothesis's likelihood as a multivariate t of the differences to the first launch.

    Differences don't see the level, which is what a flat prior of it comes to. Independent of the code under test:
    no gaps, no regression, scipy's density.
    """
    places = [(), *((c,) for c in range(steps)), *combinations(range(steps), 2)]
    slots = sorted({launch.slot for launch in found})
    weights: dict[tuple[int, ...], float] = {}
    for place in places:
        per_place = [1, steps, math.comb(steps, 2)][len(place)]
        widths = prior.change_sds if place else prior.change_sds[:1]
        for width in widths:
            cov = np.eye(len(found))
            for c in place:
                x = np.array([float(launch.node > c) for launch in found])
                cov += (width / prior.noise_sd) ** 2 * np.outer(x, x)
            if len(slots) > 1:
                same = np.array([[float(a.slot == b.slot) for b in found] for a in found])
                cov += (prior.slot_sd / prior.noise_sd) ** 2 * same
            to_first = np.hstack([-np.ones((len(found) - 1, 1)), np.eye(len(found) - 1)])
            y = to_first @ np.array([launch.value for launch in found])
            scale = prior.noise_sd**2 * to_first @ cov @ to_first.T
            density = stats.multivariate_t(np.zeros(len(y)), scale, df=round(2 * prior.shape)).pdf(y)
            chance = prior.changes[len(place)] / per_place / len(widths)
            weights[place] = weights.get(place, 0.0) + chance * float(density)
    total = math.fsum(weights.values())
    return {place: weight / total for place, weight in weights.items()}


def place_weights(posterior: Posterior) -> dict[tuple[int, ...], float]:
    found: dict[tuple[int, ...], float] = {}
    hypotheses = posterior.hypotheses
    for first, second, weight in zip(hypotheses.first, hypotheses.second, posterior.weight, strict=True):
        place = tuple(int(step) for step in (first, second) if step >= 0)
        found[place] = found.get(place, 0.0) + float(weight)
    return found


@pytest.mark.parametrize("slots", [1, 2])
def test_the_weights_are_those_of_the_densities_written_out(slots: int) -> None:
    rng = np.random.default_rng(slots)
    nodes = [0, 5, 5, 0, 2, 3]
    found = [Launch(node, 0.05 * (node > 2) + rng.normal(0, 0.02), i % slots) for i, node in enumerate(nodes)]
    expected = by_brute_force(found, 5, Prior())
    assert place_weights(fit(found, [1.0] * 5)) == pytest.approx(expected, rel=1e-6)


@given(launches)
@settings(max_examples=60, deadline=None)
def test_steps_and_none_sum_to_one_and_the_order_of_launches_changes_nothing(found: list[Launch]) -> None:
    there, back = fit(found, [1.0] * 5), fit(found[::-1], [1.0] * 5)
    assert math.isclose(there.steps.sum() + there.none, 1, abs_tol=1e-9)
    assert (there.steps >= 0).all()
    assert there.steps.tolist() == back.steps.tolist()
    assert (there.changed + 0.02 >= there.steps).all()  # the shares of two changes are made of marginals
    shares = there.shares
    assert np.allclose(shares.sum(axis=1), 1)
    assert (shares >= -1e-12).all()


@given(launches, st.floats(-3, 3))
@settings(max_examples=60, deadline=None)
def test_a_common_factor_changes_nothing(found: list[Launch], shift: float) -> None:
    moved = [Launch(launch.node, launch.value + shift, launch.slot) for launch in found]
    assert np.allclose(fit(found, [1.0] * 5).steps, fit(moved, [1.0] * 5).steps, atol=1e-7)


@given(launches)
@settings(max_examples=60, deadline=None)
def test_chances_above_rising_limits_fall_and_mirror_when_better_and_worse_are_swapped(found: list[Launch]) -> None:
    posterior = fit(found, [1.0] * 5)
    chances = [posterior.total_above(limit) for limit in (-0.5, -0.02, 0.02, 0.5)]
    assert chances == sorted(chances, reverse=True)
    mirrored = fit([Launch(launch.node, -launch.value, launch.slot) for launch in found], [1.0] * 5)
    assert mirrored.total_above(0.02) == pytest.approx(1 - posterior.total_above(-0.02), abs=1e-9)


def test_without_launches_every_step_is_as_likely_as_its_weight() -> None:
    posterior = fit([], [1.0, 1.0, 2.0])
    one = [weight for place, weight in place_weights(posterior).items() if len(place) == 1]
    assert one == pytest.approx([Prior().changes[1] * share for share in (0.25, 0.25, 0.5)])
    assert posterior.none > Prior().changes[0]


def test_the_larger_of_two_changes_is_the_primary_one_and_both_are_changes() -> None:
    truth = [0, 0, 0.385, 0.385, 0.385, 0.385, 0.46, 0.46]
    found = [Launch(node, truth[node] + 0.003 * (-1) ** i) for i, node in enumerate([0, 7, 7, 0, 1, 2, 5, 6])]
    posterior = fit(found, [1.0] * 7)
    assert posterior.steps[1] > 0.99
    assert posterior.changed[5] > 0.99
    assert posterior.size(1) == pytest.approx(0.385, abs=0.02)


def test_a_change_for_the_better_is_no_step() -> None:
    found = [Launch(node, -0.3 * (node > 1) + 0.003 * (-1) ** i) for i, node in enumerate([0, 3, 3, 0, 1, 2])]
    posterior = fit(found, [1.0] * 3)
    assert posterior.none > 0.99
    assert posterior.total_above(0) < 0.01
