"""What to measure next: information against simulation, and the choices that follow from it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.domain import probe
from service.domain.posterior import Launch, fit
from service.domain.probe import Search

ENDS = (Launch(0, 0.0), Launch(11, 0.4), Launch(11, 0.405), Launch(0, 0.004))
EVEN = (1.0,) * 11


def search(launches: tuple[Launch, ...] = ENDS, broken: frozenset[int] = frozenset(), nodes: int = 12) -> Search:
    return Search(launches, (1.0,) * (nodes - 1), tuple(range(nodes)), broken)


def test_bits_are_the_entropy_that_simulated_launches_take_away() -> None:
    """Launches are drawn from the prediction, and the posterior is computed anew with each.

    So computed anew are the shares of two changes, too, which ``bits`` leaves as they are: it tells a little less.
    """
    rng = np.random.default_rng(7)
    posterior = fit(ENDS, EVEN)
    _, mass, mean, scale = posterior.classes(3)
    centre = np.mean([launch.value for launch in ENDS])
    drawn = rng.choice(len(mass), size=400, p=mass / mass.sum())
    left = []
    for index in drawn:
        value = float(centre + mean[index] + scale[index] * rng.standard_t(posterior.degrees))
        left.append(probe.uncertainty(fit((*ENDS, Launch(3, value)), EVEN)))
    expected = probe.uncertainty(posterior) - float(np.mean(left))
    assert probe.bits(posterior, 3) == pytest.approx(expected, abs=0.15)


def test_the_first_probe_halves_the_lineup_and_the_second_halves_a_half() -> None:
    first, second = probe.choose(search(), [], 2, 0.0)
    assert first.node in (5, 6)
    assert second.node in (2, 3, 8, 9)
    assert first.bits > second.bits > first.bits / 2


def test_a_probe_is_chosen_as_if_pending_ones_were_known() -> None:
    alone = probe.choose(search(), [], 1, 0.0)[0]
    beside = probe.choose(search(), [alone.node], 1, 0.0)[0]
    assert beside.node not in (5, 6)
    assert beside.bits < alone.bits


def test_no_probe_is_made_that_tells_less_than_asked() -> None:
    assert probe.choose(search(), [], 2, 5.0) == []


def test_the_neighbourhood_of_broken_builds_is_avoided() -> None:
    whole = probe.choose(search(), [], 1, 0.0)[0]
    nodes = tuple(position for position in range(13) if position != 6)
    near = Search(ENDS, (*(1.0,) * 5, 2.0, *(1.0,) * 5), nodes, frozenset({6}))
    assert whole.node in (5, 6)
    assert nodes[probe.choose(near, [], 1, 0.0)[0].node] not in (5, 7)


def test_failure_falls_with_distance_and_is_none_for_what_was_measured_or_where_nothing_is_broken() -> None:
    chances = [probe.failure(position, frozenset({6}), frozenset({0, 11})) for position in (7, 8, 9, 10)]
    assert chances == sorted(chances, reverse=True)
    assert 0 < chances[-1] < chances[0] < 1
    assert probe.failure(0, frozenset({1}), frozenset({0, 11})) == 0
    assert probe.failure(5, frozenset(), frozenset({0, 11})) == 0


@given(st.lists(st.builds(Launch, st.integers(0, 11), st.floats(-0.5, 0.5), st.integers(0, 1)), max_size=8))
@settings(max_examples=40, deadline=None)
def test_bits_are_never_negative_nor_more_than_is_left(launches: list[Launch]) -> None:
    posterior = fit(launches, EVEN)
    left = probe.uncertainty(posterior)
    for node in (0, 4, 11):
        assert 0 <= probe.bits(posterior, node) <= left + 1e-9


def test_a_batch_ends_before_a_probe_that_hardly_adds_to_the_first() -> None:
    ends = (Launch(0, 0.0), Launch(2, 0.4), Launch(2, 0.405), Launch(0, 0.004))
    assert [one.node for one in probe.choose(search(ends, nodes=3), [], 3, 0.0)] == [1]
    batch = probe.choose(search(), [], 8, 0.0)
    assert 2 <= len(batch) < 8
    assert all(one.bits >= batch[0].bits / 2 for one in batch)
