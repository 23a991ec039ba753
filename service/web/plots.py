"""Which charts belong to a comparison, and what their dots and bands are."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from service.actions.comparison_views import ComparedLaunch, ComparisonView, MetricRow
from service.ruler.validity import Validity
from service.web.charts import Band, Dot, Forest, sequence, strip
from service.web.figures import clock, number


@dataclass(frozen=True)
class Plots:
    """The charts of one comparison; the first two are None while no launch has the metric."""

    strip: Markup | None
    sequence: Markup | None
    forests: list[Markup]
    """One per row of the table."""
    reach: float
    """Their common axis goes from 1/reach to reach."""
    missing: int
    """Launches without a value of the metric: they can't be drawn."""


def plots_of(view: ComparisonView) -> Plots:
    """Return the charts of the metric that a comparison is about, and an interval bar for every row."""
    row = view.rows[0]
    names = side_names(view)
    shown = [one for one in view.launches if row.metric in one.launch.metrics]
    forest = Forest.over(value for r in view.rows for value in (r.ratio, r.low, r.high))
    forests = [forest.draw(r.ratio, r.low, r.high, r.margin, r.verdict.value) for r in view.rows]
    if not shown:
        return Plots(None, None, forests, forest.reach, len(view.launches))
    axis = f"{row.label}, {row.unit}" + (f" ({view.marks})" if view.cell.simulated else "")
    title = f"{row.label} of every launch of {names[0]} and {names[1]}"
    by_side = [_dot(one, row, names[0] if one.side == "base" else names[1], "") for one in shown]
    by_slot = [_dot(one, row, _slot(one), f"{one.launch.request_id} {one.launch.block}") for one in shown]
    return Plots(
        strip(by_side, _bands(row, names), axis, title, "strip"),
        sequence(by_slot, axis, f"{title}, in the order of time, by slot", "sequence"),
        forests,
        forest.reach,
        len(view.launches) - len(shown),
    )


def side_names(view: ComparisonView) -> tuple[str, str]:
    """Return what the two sides are called on the page; different even when the builds have one name."""
    if view.base.name != view.head.name:
        return view.base.name, view.head.name
    return f"{view.base.name} (base)", f"{view.head.name} (head)"


def _bands(row: MetricRow, names: Sequence[str]) -> list[Band]:
    sides = zip(("base", "head"), names, (row.base, row.head), strict=True)
    return [Band(name, side, one.value, one.low, one.high) for side, name, one in sides if one.value is not None]


def _dot(one: ComparedLaunch, row: MetricRow, lane: str, group: str) -> Dot:
    launch, value = one.launch, one.launch.metrics[row.metric]
    state = "" if one.used else f", not used: {one.unused_because}"
    label = f"{launch.build.name}, {number(value)} {row.unit}, {_slot(one)}, {clock(launch.created_at)}{state}"
    return Dot(
        value=value,
        lane=lane,
        side=one.side.value,
        label=label,
        href=f"/launches/{launch.id}",
        used=one.used,
        suspect=launch.validity == Validity.SUSPECT,
        group=group,
    )


def _slot(one: ComparedLaunch) -> str:
    return f"{one.launch.runner_name} · slot {one.launch.slot_index}"
