"""Stretches of time in which enough requests overlap."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Stretch = tuple[int, int]
"""Start and end, both included, in microseconds."""


def stretches(intervals: Sequence[Stretch], level: int) -> list[Stretch]:
    """Return, in order, the maximal stretches that at least ``level`` of the closed intervals cover."""
    # At equal times starts come before ends: an interval that begins where another ends overlaps it.
    marks = sorted([(start, 0) for start, _ in intervals] + [(end, 1) for _, end in intervals])
    found: list[Stretch] = []
    depth, began = 0, 0
    for at, is_end in marks:
        depth += -1 if is_end else 1
        if not is_end and depth == level:
            began = at
        elif is_end and depth == level - 1:
            found.append((began, at))
    return found


def bridge(windows: Sequence[Stretch], gap_us: int) -> list[Stretch]:
    """Join neighbours that are less than ``gap_us`` apart."""
    joined: list[Stretch] = []
    for start, end in windows:
        if joined and start - joined[-1][1] < gap_us:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined


def inside(
    starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], windows: Sequence[Stretch]
) -> npt.NDArray[np.bool_]:
    """Return, for each pair of a start and an end, whether one window holds both; windows are disjoint and in order."""
    if not windows:
        return np.zeros(len(starts), dtype=np.bool_)
    bounds = np.array(windows, dtype=np.int64)
    at = np.searchsorted(bounds[:, 0], starts, side="right") - 1
    held: npt.NDArray[np.bool_] = (at >= 0) & (ends <= bounds[np.maximum(at, 0), 1])
    return held
