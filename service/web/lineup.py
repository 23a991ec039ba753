"""Charts of a bisect: values along the lineup, the posterior over its steps, and the same small for each decision.

Pure, as service.web.charts. The two large ones share their horizontal axis, so that a bar of the posterior stands under
the gap between the two versions that it is about.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from service.web.figures import number, share, tick_label, ticks
from service.web.svg import WIDTH, XMLNS, Scale, drawing, line, padded, tag, text

_LEFT, _RIGHT = 108, 20
_RADIUS = 4.5
_LABEL_ROOM = 62
"""Width that the name of a version needs; with more versions only some are named."""
_MINI_WIDTH, _MINI_HEIGHT = 168, 26


@dataclass(frozen=True)
class Mark:
    """One launch of a version. ``fresh`` marks the launches of the confirmation."""

    value: float
    label: str
    href: str
    fresh: bool = False


@dataclass(frozen=True)
class Place:
    """One version: its launches, mean and interval where there are any. ``broken`` is why it can't be measured."""

    name: str
    marks: tuple[Mark, ...] = ()
    value: float | None = None
    low: float | None = None
    high: float | None = None
    broken: str = ""


def values_along(places: Sequence[Place], step: tuple[int, int] | None, axis: str, title: str, name: str) -> Markup:
    """Return one column per version with every launch as a dot, mean and interval beside them.

    ``step`` are the positions of the last good and the first bad version: the gap between them is shaded and the first
    bad named. The vertical axis doesn't begin at zero: positions are compared here, not lengths.
    """
    top, bottom = 46.0, 280.0
    seen = [mark.value for place in places for mark in place.marks]
    low, high = padded([*seen, *_near(places, seen)])
    down = Scale(low, high, bottom, top)
    parts = []
    if step is not None:
        parts += _gap(places, step, top, bottom)
    for tick in ticks(low, high, 5):
        parts.append(line("grid", _LEFT, down(tick), WIDTH - _RIGHT, down(tick)))
        parts.append(text("tick end", _LEFT - 10, down(tick) + 4, tick_label(tick)))
    for at, place in enumerate(places):
        bad = step is not None and at >= step[1]
        parts += _column(place, _x(at, len(places)), down, bad)
    parts += _names(places, bottom + 20)
    parts.append(text("axis", 0, 12, axis))
    return drawing(name, title, _describe(places, step, axis), bottom + 34, parts)


def posterior(names: Sequence[str], steps: Sequence[float], none: float, title: str, name: str) -> Markup:
    """Return one bar per step, from 0 to 1, under the gap between its two versions; "no change" stands at the left.

    ``steps[i]`` is the probability that the change lies between ``names[i]`` and ``names[i + 1]``.
    """
    top, bottom = 22.0, 112.0
    down = Scale(0, 1, bottom, top)
    parts = [line("grid", _LEFT, down(tick), WIDTH - _RIGHT, down(tick)) for tick in (0, 0.5, 1)]
    parts += [text("tick end", _LEFT - 10, down(tick) + 4, f"{tick:g}") for tick in (0, 0.5, 1)]
    width = min(46.0, _pitch(len(names)) * 0.62)
    best = max(steps, default=0.0)
    shown = [(_x(i + 0.5, len(names)), value, value == best and value > none) for i, value in enumerate(steps)]
    for x, value, leading in [(20.0, none, none >= best), *shown]:
        parts.append(_bar(x, down(value), bottom, width if x > _LEFT else 20.0, leading))
        if value >= 0.05:
            parts.append(text("value middle", x, down(value) - 5, share(value)))
    parts.append(text("tick middle", 20, bottom + 20, "none"))
    parts += _names([Place(one) for one in names], bottom + 20)
    return drawing(name, title, _describe_posterior(names, steps, none), bottom + 34, parts)


def small_posterior(steps: Sequence[float], none: float) -> Markup:
    """Return the posterior as bars without words, for a row of a table whose text says the same."""
    best = max(steps, default=0.0)
    pitch = _MINI_WIDTH / (len(steps) + 2)
    base = _MINI_HEIGHT - 1
    parts = [line("grid", 0, base, _MINI_WIDTH, base)]
    for at, value in enumerate([none, *steps]):
        x = pitch * (at + (0.5 if at == 0 else 1.5))  # a gap sets "no change" apart from the steps
        leading = value == (none if none >= best else best)
        parts.append(_bar(x, base - value * (base - 1), base, max(1.0, pitch * 0.7), leading))
    size = {"class": "small-bars", "viewBox": f"0 0 {_MINI_WIDTH} {_MINI_HEIGHT}", "aria-hidden": "true"}
    return tag("svg", {**size, "xmlns": XMLNS}, parts)


def _x(at: float, count: int) -> float:
    return _LEFT + _pitch(count) * (at + 0.5)


def _pitch(count: int) -> float:
    return (WIDTH - _LEFT - _RIGHT) / max(count, 1)


def _near(places: Sequence[Place], seen: Sequence[float]) -> list[float]:
    """Ends of intervals, as far as they leave the launches half of the room."""
    if not seen:
        return []
    room = (max(seen) - min(seen)) / 2 or abs(seen[0]) * 0.1
    ends = [end for place in places for end in (place.low, place.high) if end is not None]
    return [min(max(end, min(seen) - room), max(seen) + room) for end in ends]


def _gap(places: Sequence[Place], step: tuple[int, int], top: float, bottom: float) -> list[Markup]:
    left, right = (_x(at, len(places)) for at in step)
    band = {"class": "step", "x": f"{left:.1f}", "y": f"{top:.1f}", "width": f"{right - left:.1f}"}
    return [
        tag("rect", {**band, "height": f"{bottom - top:.1f}"}),
        text("first-bad middle", right, top - 8, f"first bad: {places[step[1]].name}"),
    ]


def _column(place: Place, x: float, down: Scale, bad: bool) -> list[Markup]:
    side = "head" if bad else "base"
    parts = []
    if place.broken:
        cross = {"class": "unused", "d": _cross(x, down.start - 10)}
        parts.append(tag("g", {}, [tag("title", {}, [escape(f"{place.name}: {place.broken}")]), tag("path", cross)]))
    if place.value is not None:
        if place.low is not None and place.high is not None:
            parts.append(line(f"reach {side}", x + 13, down(place.low), x + 13, down(place.high)))
        parts.append(line(f"mean {side}", x + 8, down(place.value), x + 18, down(place.value)))
    placed: list[tuple[float, float]] = []
    for mark in sorted(place.marks, key=lambda one: one.value):
        y = down(mark.value)
        offset = next((o for o in (0.0, -9.0, -18.0, -27.0) if _is_free(x + o, y, placed)), 0.0)
        placed.append((x + offset, y))
        at = {"class": f"dot {side}{' fresh' if mark.fresh else ''}", "cx": f"{x + offset:.1f}", "cy": f"{y:.1f}"}
        inside = [tag("title", {}, [escape(mark.label)]), tag("circle", {**at, "r": f"{_RADIUS:g}"})]
        parts.append(tag("a", {"href": mark.href, "tabindex": "-1"}, inside))
    return parts


def _is_free(x: float, y: float, placed: Sequence[tuple[float, float]]) -> bool:
    return all(math.hypot(x - px, y - py) >= 2 * _RADIUS - 0.5 for px, py in placed)


def _cross(x: float, y: float) -> str:
    r = _RADIUS
    return f"M{x - r:.1f} {y - r:.1f}L{x + r:.1f} {y + r:.1f}M{x - r:.1f} {y + r:.1f}L{x + r:.1f} {y - r:.1f}"


def _names(places: Sequence[Place], y: float) -> list[Markup]:
    """The names that have room, both ends among them."""
    every = math.ceil(_LABEL_ROOM / _pitch(len(places)))
    last = len(places) - 1
    chosen = [at for at in range(0, last, every) if last - at >= every] + [last]
    return [text("tick middle", _x(at, len(places)), y, _clipped(places[at].name)) for at in chosen]


def _clipped(name: str) -> str:
    return name if len(name) <= 11 else name[:10] + "…"


def _bar(x: float, y: float, bottom: float, width: float, leading: bool) -> Markup:
    at = {
        "x": f"{x - width / 2:.1f}",
        "y": f"{y:.1f}",
        "width": f"{width:.1f}",
        "height": f"{max(bottom - y, 0.6):.1f}",
    }
    return tag("rect", {"class": "bar leading" if leading else "bar", **at})


def _describe(places: Sequence[Place], step: tuple[int, int] | None, axis: str) -> str:
    parts = []
    for place in places:
        if place.broken:
            parts.append(f"{place.name}: {place.broken}")
        elif place.value is not None:
            listed = ", ".join(number(mark.value) for mark in place.marks)
            parts.append(f"{place.name}: mean {number(place.value)} ({listed})")
        else:
            parts.append(f"{place.name}: not measured")
    where = f" The step: {places[step[0]].name} to {places[step[1]].name}." if step else ""
    return f"{axis}. {'; '.join(parts)}.{where}"


def _describe_posterior(names: Sequence[str], steps: Sequence[float], none: float) -> str:
    pairs = zip(names, names[1:], steps, strict=False)
    listed = [f"{good} to {bad} {share(value)}" for good, bad, value in pairs if value >= 0.005]
    return f"Probability of no change {share(none)}; " + ("; ".join(listed) or "no step has any") + "."
