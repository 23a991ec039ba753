"""Stretches against counting by hand, point by point."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.ruler.stretches import bridge, inside, stretches

interval = st.tuples(st.integers(0, 40), st.integers(0, 40)).map(lambda pair: (min(pair), max(pair)))
intervals = st.lists(interval, max_size=12)
levels = st.integers(1, 4)


def covered(windows: list[tuple[int, int]], at: float) -> int:
    return sum(start <= at <= end for start, end in windows)


@given(intervals, levels)
def test_a_point_is_in_a_stretch_exactly_when_enough_intervals_cover_it(
    windows: list[tuple[int, int]], level: int
) -> None:
    found = stretches(windows, level)
    for half in range(-1, 83):
        assert covered(found, half / 2) == (covered(windows, half / 2) >= level)


@given(intervals, levels, st.integers(1, 10))
def test_bridged_stretches_keep_their_distance(windows: list[tuple[int, int]], level: int, gap: int) -> None:
    found = stretches(windows, level)
    joined = bridge(found, gap)
    assert all(b[0] - a[1] >= gap for a, b in itertools.pairwise(joined))
    assert all(covered(joined, start) and covered(joined, end) for start, end in found)


@given(intervals, levels, st.lists(interval, max_size=10))
def test_inside_means_held_by_one_window(
    windows: list[tuple[int, int]], level: int, asked: list[tuple[int, int]]
) -> None:
    found = stretches(windows, level)
    starts, ends = (np.array([pair[k] for pair in asked], dtype=np.int64) for k in (0, 1))
    expected = [any(s <= a and b <= e for s, e in found) for a, b in asked]
    assert inside(starts, ends, found).tolist() == expected
