"""Charts: data in, accessible SVG out. Pure; colours and type come from the style sheet, so both themes work.

Every chart is ``role="img"`` with a title and a description that carry its content. Every launch is a link for the
pointer only: what is inside an image is no stop for the keyboard, the table of launches below has the same links.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count

from markupsafe import Markup, escape

from service.web.figures import number, tick_label, ticks
from service.web.svg import WIDTH, XMLNS, Scale, drawing, line, padded, tag, text

_LEFT, _RIGHT = 190, 96
_RADIUS = 5.0


@dataclass(frozen=True)
class Dot:
    """One launch: its value, the lane that it lies in, its side (``base`` or ``head``), and where its link leads."""

    value: float
    lane: str
    side: str
    label: str
    href: str
    used: bool = True
    suspect: bool = False
    group: str = ""
    """Launches of one group (a block) are joined by a line."""


@dataclass(frozen=True)
class Band:
    """A mean with its interval, in one lane; the interval is None where one launch is all."""

    lane: str
    side: str
    value: float
    low: float | None
    high: float | None


def strip(dots: Sequence[Dot], bands: Sequence[Band], axis: str, title: str, name: str) -> Markup:
    """Return every launch as a dot on one axis, one lane per side, with each side's mean and interval below its dots.

    The axis doesn't begin at zero: positions are compared here, not lengths. ``name`` is the id of the chart.
    """
    lanes = list(dict.fromkeys(band.lane for band in bands) | dict.fromkeys(dot.lane for dot in dots))
    scale = _scale([d.value for d in dots] + [b.value for b in bands], [v for b in bands for v in (b.low, b.high)])
    height, top = 84, 8
    bottom = top + height * len(lanes)
    parts = _grid(scale, top, bottom, axis)
    for lane, y in zip(lanes, count(top, height), strict=False):
        parts.append(_lane_label(lane, f"{sum(d.lane == lane and d.used for d in dots)} used", y + 34))
        parts += _swarm([d for d in dots if d.lane == lane], scale, y + 32)
        parts += [_band(band, scale, y + 66) for band in bands if band.lane == lane]
    return drawing(name, title, _describe(dots, bands, axis), bottom + 44, parts)


def sequence(dots: Sequence[Dot], axis: str, title: str, name: str) -> Markup:
    """Return the launches in the order of time, one lane per slot; all lanes share both axes, blocks are joined."""
    lanes = sorted({dot.lane for dot in dots})
    height, top, gap = 104, 14, 22
    across = Scale(0.5, max(len(dots), 2) + 0.5, _LEFT, WIDTH - 24)
    low, high = padded([dot.value for dot in dots])
    parts: list[Markup] = []
    for lane, y in zip(lanes, count(top, height + gap), strict=False):
        down = Scale(low, high, y + height, y)
        parts.append(_lane_label(lane, "", y + height / 2))
        for tick in ticks(low, high, 3):
            parts.append(line("grid", _LEFT, down(tick), WIDTH - 24, down(tick)))
            parts.append(text("tick end", _LEFT - 10, down(tick) + 4, tick_label(tick)))
        placed = [(across(i), down(dot.value), dot) for i, dot in enumerate(dots, 1) if dot.lane == lane]
        for group in dict.fromkeys(dot.group for _, _, dot in placed):
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y, dot in placed if dot.group == group and dot.used)
            parts.append(tag("polyline", {"class": "joined", "points": points}))
        parts += [_dot(dot, x, y, letter=True) for x, y, dot in placed]
    bottom = top + (height + gap) * len(lanes)
    parts.append(text("axis", _LEFT, bottom + 10, f"{axis}; launches from left to right in the order of time"))
    return drawing(name, title, _describe(dots, [], axis), bottom + 24, parts)


@dataclass(frozen=True)
class Forest:
    """Ratios with their intervals, each drawn by itself, on one logarithmic axis from 1/reach to reach."""

    reach: float

    @classmethod
    def over(cls, ratios: Iterable[float | None]) -> "Forest":
        """Return the axis that shows all of them, at least 1.05 and at most 20 wide on either side of 1."""
        known = [abs(math.log(value)) for value in ratios if value is not None and value > 0]
        return cls(math.exp(min(max([*known, math.log(1.05)]) * 1.08, math.log(20))))

    def draw(self, ratio: float | None, low: float | None, high: float | None, margin: float, verdict: str) -> Markup:
        """Return one interval, with the band of the margin behind it; the numbers stand beside it in the table."""
        edge = math.log(self.reach)
        scale = Scale(-edge, edge, 4, 176)
        left, right = scale(-math.log1p(margin)), scale(math.log1p(margin))
        band = {"class": "margin", "x": f"{left:.1f}", "y": "0", "width": f"{right - left:.1f}", "height": "24"}
        parts = [tag("rect", band), line("one", scale(0), 0, scale(0), 24)]
        if low is not None and high is not None:
            parts.append(line(f"reach {verdict}", scale(math.log(low)), 12, scale(math.log(high)), 12))
        if ratio is not None:
            at = {"class": f"point {verdict}", "cx": f"{scale(math.log(ratio)):.1f}", "cy": "12", "r": "4"}
            parts.append(tag("circle", at))
        return tag("svg", {"class": "forest", "viewBox": "0 0 180 24", "aria-hidden": "true", "xmlns": XMLNS}, parts)


def _scale(values: Sequence[float], ends: Iterable[float | None]) -> Scale:
    """An axis for the values, and for ends of intervals as far as they leave the values half of the room."""
    room = (max(values) - min(values)) / 2 or abs(values[0]) * 0.1
    near = [min(max(end, min(values) - room), max(values) + room) for end in ends if end is not None]
    return Scale(*padded([*values, *near]), _LEFT, WIDTH - _RIGHT)


def _grid(scale: Scale, top: float, bottom: float, axis: str) -> list[Markup]:
    parts = []
    for tick in ticks(scale.low, scale.high, 7):
        parts.append(line("grid", scale(tick), top, scale(tick), bottom))
        parts.append(text("tick middle", scale(tick), bottom + 16, tick_label(tick)))
    parts.append(text("axis", scale.start, bottom + 36, axis))
    return parts


def _lane_label(lane: str, below: str, y: float) -> Markup:
    clipped = lane if len(lane) <= 20 else lane[:19] + "…"
    parts = [text("lane", 0, y, clipped)]
    if below:
        parts.append(text("tick", 0, y + 18, below))
    return Markup("").join(parts)


def _swarm(dots: Sequence[Dot], scale: Scale, y: float) -> list[Markup]:
    """Dots that would cover each other are moved up and down in turn, never sideways: the value stays true."""
    placed: list[tuple[float, float]] = []
    parts = []
    for dot in sorted(dots, key=lambda one: one.value):
        x = scale(dot.value)
        offsets = (step * sign * (_RADIUS * 2 + 1) for step in range(3) for sign in ((1,) if step == 0 else (-1, 1)))
        free = (o for o in offsets if all(math.hypot(x - px, o - po) >= _RADIUS * 2 for px, po in placed))
        offset = next(free, 0.0)
        placed.append((x, offset))
        parts.append(_dot(dot, x, y + offset))
    return parts


def _band(band: Band, scale: Scale, y: float) -> Markup:
    parts = []
    end = scale(band.value)
    if band.low is not None and band.high is not None:
        start, end = scale(band.low), scale(band.high)
        parts = [line(f"reach {band.side}", start, y, end, y)]
        inside = [x for value, x in ((band.low, start), (band.high, end)) if scale.low <= value <= scale.high]
        parts += [line(f"cap {band.side}", x, y - 4, x, y + 4) for x in inside]  # no cap: it goes on beyond the axis
    parts.append(line(f"mean {band.side}", scale(band.value), y - 7, scale(band.value), y + 7))
    parts.append(text("value", end + 10, y + 4, number(band.value)))
    return Markup("").join(parts)


def _dot(dot: Dot, x: float, y: float, letter: bool = False) -> Markup:
    """A circle for a launch that is used, hollow for base; a cross for one that isn't."""
    state = " suspect" if dot.suspect else ""
    if dot.used:
        at = {"class": f"dot {dot.side}{state}", "cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": f"{_RADIUS:g}"}
        mark = tag("circle", at)
    else:
        r = _RADIUS - 1
        path = f"M{x - r:.1f} {y - r:.1f}L{x + r:.1f} {y + r:.1f}M{x - r:.1f} {y + r:.1f}L{x + r:.1f} {y - r:.1f}"
        mark = tag("path", {"class": "unused", "d": path})
    parts = [tag("title", {}, [escape(dot.label)]), mark]
    if letter:
        parts.append(text("letter middle", x, y - 9, "A" if dot.side == "base" else "B"))
    return tag("a", {"href": dot.href, "tabindex": "-1"}, parts)


def _describe(dots: Sequence[Dot], bands: Sequence[Band], axis: str) -> str:
    means = [
        f"{band.lane}: mean {number(band.value)}"
        + (f", interval {number(band.low)} to {number(band.high)}" if band.low is not None else "")
        for band in bands
    ]
    lanes = dict.fromkeys(dot.lane for dot in dots)
    listed = [f"{lane}: " + ", ".join(number(d.value) for d in dots if d.lane == lane and d.used) for lane in lanes]
    return f"{axis}. " + ". ".join([*means, *listed]) + "."
