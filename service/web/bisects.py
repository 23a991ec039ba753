"""The pages of bisects and their twins: ``/bisects`` and ``/bisects/{id}``."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from markupsafe import Markup

from service.actions import bisect, bisect_report
from service.actions.bisect_views import BisectSummary, BisectView, StepView, VersionView
from service.actions.context import Context
from service.domain.report import command
from service.domain.states import BISECT, BisectState, is_final
from service.ruler.metrics import METRICS
from service.web.figures import clock, number
from service.web.lineup import Mark, Place, posterior, small_posterior, values_along
from service.web.rendering import Pages

LISTED = 100
"""Bisects on their page."""
REFRESH_S = 5
"""How often a page about something that still runs loads itself again."""


@dataclass(frozen=True)
class _Plots:
    """The charts of one bisect: None where nothing is known yet."""

    values: Markup | None
    posterior: Markup | None


@dataclass
class _Decision:
    """A step worth a row: its posterior as small bars, and how many steps after it only waited."""

    step: StepView
    bars: Markup
    waited: int = 0


def add_bisects(router: APIRouter, pages: Pages, ctx: Context) -> None:
    """Add the list, one page per bisect, and their twins."""

    @router.get("/bisects.json")
    def bisects_json() -> list[BisectSummary]:
        return bisect.list_bisects(ctx, limit=LISTED)

    @router.get("/bisects")
    def bisects_page(request: Request) -> Response:
        found = bisect.list_bisects(ctx, limit=LISTED)
        refresh_s = refresh(request, any(is_open(one.state) for one in found))
        return pages.page(request, "bisects.html", bisects=found, refresh_s=refresh_s, json_twin="/bisects.json")

    @router.get("/bisects/{bisect_id}.json")
    def bisect_json(bisect_id: str) -> BisectView:
        return bisect.get_bisect(ctx, bisect_id)

    @router.get("/bisects/{bisect_id}")
    def bisect_page(request: Request, bisect_id: str) -> Response:
        view = bisect.get_bisect(ctx, bisect_id)
        columns = [name for name in bisect_report.columns_of(view.metric) if name in METRICS]
        return pages.page(
            request,
            "bisect.html",
            view=view,
            columns=[(name, METRICS[name]) for name in columns],
            plots=_plots(view),
            decisions=_decisions(view.steps),
            pair=_pair(view),
            chosen={one.launch_id: (version, one) for version in view.lineup for one in version.points},
            repeat=command(bisect_report.request_body(view)),
            compare_url=_compare_url(view),
            open=is_open(view.state),
            refresh_s=refresh(request, is_open(view.state)),
            json_twin=f"/bisects/{view.id}.json",
        )


def is_open(state: BisectState) -> bool:
    """Return whether a bisect in this state has not ended."""
    return not is_final(BISECT, state)


def refresh(request: Request, running: bool) -> int | None:
    """Return how often a page loads itself again, in seconds; None where nothing runs or the reader asked for quiet."""
    return REFRESH_S if running and request.query_params.get("refresh") != "off" else None


def _pair(view: BisectView) -> tuple[int, int] | None:
    """The positions of the two neighbours of the finding."""
    if view.finding is None or view.finding.last_good is None or view.finding.first_bad is None:
        return None
    at = {one.name: one.index for one in view.lineup}
    return at[view.finding.last_good], at[view.finding.first_bad]


def _plots(view: BisectView) -> _Plots:
    names = [one.name for one in view.lineup]
    axis = f"{view.label}, {view.unit}".rstrip(", ") + f" ({view.marks})"
    values = None
    if any(point.value is not None for one in view.lineup for point in one.points):
        places = [_place(one, view) for one in view.lineup]
        title = f"{view.label} of every launch, by version"
        values = values_along(places, _pair(view), axis, title, "values")
    bars = None
    if view.picture is not None:
        shares = [one.probability for one in view.picture.steps]
        bars = posterior(names, shares, view.picture.none, "Where the change lies: posterior over the steps", "bars")
    return _Plots(values, bars)


def _decisions(steps: Sequence[StepView]) -> list[_Decision]:
    """A step that ordered nothing, and says what the one before it said, is counted there; the twin has all of them."""
    found: list[_Decision] = []
    for step in steps:
        waits = not step.orders and step.phase is not None
        if found and waits and step.reason == found[-1].step.reason:
            found[-1].waited += 1
        else:
            shares = [one.probability for one in step.picture.steps]
            found.append(_Decision(step, small_posterior(shares, step.picture.none)))
    return found


def _place(one: VersionView, view: BisectView) -> Place:
    marks = [
        Mark(
            value=point.value,
            label=f"{one.name}, {number(point.value)} {view.unit}, {point.phase.value}, {clock(point.at)}",
            href=f"/launches/{point.launch_id}",
            fresh=view.finding is not None and point.launch_id in view.finding.confirmation,
        )
        for point in one.points
        if point.value is not None
    ]
    return Place(one.name, tuple(marks), one.value, one.low, one.high, one.why if one.broken else "")


def _compare_url(view: BisectView) -> str | None:
    pair = _pair(view)
    if pair is None or view.metric not in METRICS:
        return None
    good, bad = (view.lineup[at].build.name for at in pair)
    query = urlencode({"metric": view.metric, "request": view.request_id})
    return f"/compare/{good}...{bad}?{query}"
