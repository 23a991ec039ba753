"""From launches of two builds in one cell to rows, notes and verdicts. Reads nothing: the launches are passed in."""

from collections.abc import Iterable, Sequence

from service.actions.comparison_views import CellSummary, ComparedLaunch, MetricRow, SideView
from service.actions.sentences import verdict_sentence
from service.actions.views import BuildView, LaunchView
from service.domain.compare import Comparison, Criterion, Estimate, Method, Observation, Side, compare
from service.ruler.metrics import METRICS, MetricInfo
from service.ruler.validity import Validity

MARGIN = 0.02
"""Changes within two percent don't matter, whatever the metric (also the alert threshold of Mozilla's Perfherder)."""

_OWN_FLAGS = frozenset({"--port", "--served-model-name", "--host", "--profile-file", "--profile-sha256"})
"""Of the launcher: different for every launch, or how it names the build itself."""

_MAX_DIFFERENCES = 20


def compared(launches: Iterable[LaunchView], base: BuildView, head: BuildView, metric: str) -> list[ComparedLaunch]:
    """Return the launches of both builds, oldest first, each with its side and whether it counts for ``metric``."""
    found = []
    for launch in sorted(launches, key=lambda one: (one.created_at, one.id)):
        side = _side(launch, base, head)
        if side is not None:
            why = _unusable_because(launch, metric)
            found.append(ComparedLaunch(side=side, used=not why, unused_because=why, launch=launch))
    usable = [one.launch.id for one in found if one.used]
    result = compare(_observations(found, metric), Criterion(lower_better=True))
    alone = {launch_id for launch_id, counts in zip(usable, result.counted, strict=True) if not counts}
    lonely = {"used": False, "unused_because": "no launch of the other build beside it"}
    return [one.model_copy(update=lonely) if one.launch.id in alone else one for one in found]


def summary_of(launch: LaunchView) -> CellSummary:
    """Return a launch's cell in words."""
    return CellSummary(
        digest=launch.cell_digest,
        recipe=launch.cell.recipe.name,
        workload=launch.cell.workload.name,
        hardware=launch.hardware,
        simulated=launch.simulated,
        time_compression=launch.time_compression,
        ruler_version=launch.cell.ruler_version,
    )


def rows(
    launches: Sequence[ComparedLaunch], names: tuple[str, str], metric: str, confidence: float, mark: str
) -> list[MetricRow]:
    """Return one row per metric that a launch has and that has a better direction; ``metric`` first, always there."""
    others = [name for name in METRICS if name != metric and any(name in one.launch.metrics for one in launches)]
    return [
        _row(launches, names, name, criterion, mark)
        for name in [metric, *others]
        if (criterion := criterion_of(METRICS[name], confidence)) is not None
    ]


def criterion_of(info: MetricInfo, confidence: float) -> Criterion | None:
    """Return how a metric is judged; None for one of which neither more nor less is better."""
    if info.direction == "neither":
        return None
    return Criterion(lower_better=info.direction == "lower_better", margin=MARGIN, confidence=confidence)


def notes(launches: Sequence[ComparedLaunch], names: tuple[str, str], row: MetricRow) -> list[str]:
    """Return what to know before the verdict is believed: what was not held constant, left out, or is suspect."""
    found = []
    if row.method is Method.SLOTS:
        found.append(
            "The two builds were measured on the same slots but not interleaved there: a drift in time can't be told "
            "from a difference between the builds."
        )
    if row.method is Method.UNPAIRED:
        found.append(
            "No slot has launches of both builds: a difference between slots can't be told from one between the builds."
        )
    for side, name in zip(Side, names, strict=True):
        own = [one for one in launches if one.side is side]
        unused = sum(not one.used for one in own)
        suspect = sum(one.used and one.launch.validity == Validity.SUSPECT for one in own)
        if unused:
            found.append(f"{_count(unused)} of {name} {_is(unused)} not used: see the reasons below.")
        if suspect:
            found.append(f"{_count(suspect)} of {name} {_is(suspect)} suspect: used; the reasons are with each launch.")
    return found


def start_differences(launches: Sequence[ComparedLaunch], names: tuple[str, str]) -> list[str]:
    """Return arguments and variables that every launch of one side had and no launch of the other."""
    found = []
    used = {side: [one.launch for one in launches if one.side is side] for side in Side}
    if not all(used.values()):
        return []
    for side, other, name in zip(Side, reversed(Side), names, strict=True):
        constant = set.intersection(*(_settings(launch) for launch in used[side]))
        elsewhere = set.union(*(_settings(launch) for launch in used[other]))
        found += [f"only {name} was started with {setting}" for setting in sorted(constant - elsewhere)]
    if len(found) > _MAX_DIFFERENCES:
        found[_MAX_DIFFERENCES:] = [f"and {len(found) - _MAX_DIFFERENCES} more"]
    return found


def _row(
    launches: Sequence[ComparedLaunch], names: tuple[str, str], name: str, criterion: Criterion, mark: str
) -> MetricRow:
    info = METRICS[name]
    found = compare(_observations(launches, name), criterion)
    return MetricRow(
        metric=name,
        label=info.label,
        unit=info.unit,
        direction="lower_better" if criterion.lower_better else "higher_better",
        margin=criterion.margin,
        base=_side_view(found.base),
        head=_side_view(found.head),
        **_figures(found),
        sentence=verdict_sentence(*names, info, found, criterion, mark),
    )


def _figures(found: Comparison) -> dict[str, object]:
    return {
        name: getattr(found, name)
        for name in (
            "ratio",
            "low",
            "high",
            "verdict",
            "method",
            "residual_sd",
            "degrees",
            "smallest_detectable",
            "launches_needed",
            "forecast_capped",
        )
    }


def _observations(launches: Sequence[ComparedLaunch], metric: str) -> list[Observation]:
    """A block whose slot was lost in the middle goes on elsewhere: the slot is part of the block."""
    return [
        Observation(
            side=one.side,
            value=one.launch.metrics[metric],
            block=(one.launch.request_id, one.launch.block, one.launch.slot_id),
            slot=one.launch.slot_id,
        )
        for one in launches
        if not _unusable_because(one.launch, metric)
    ]


def _unusable_because(launch: LaunchView, metric: str) -> str:
    if launch.validity == Validity.INVALID:
        return "invalid"
    if metric not in launch.metrics:
        return f"has no {METRICS[metric].label}"
    return "" if launch.metrics[metric] > 0 else f"its {METRICS[metric].label} is not above zero"


def _side(launch: LaunchView, base: BuildView, head: BuildView) -> Side | None:
    return {base.id: Side.BASE, head.id: Side.HEAD}.get(launch.build.id)


def _side_view(estimate: Estimate) -> SideView:
    return SideView(launches=estimate.launches, value=estimate.value, low=estimate.low, high=estimate.high)


def _settings(launch: LaunchView) -> set[str]:
    """Arguments, each with its value, and variables; without what the launcher sets anew for every launch."""
    words, found = launch.report.identity.command, set()
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word.startswith("--") and word.partition("=")[0] not in _OWN_FLAGS:
            value = "" if following.startswith("--") else following
            found.add(f"{word} {value}".rstrip())
    return found | {f"{name}={value}" for name, value in launch.report.identity.env.items()}


def _count(number: int) -> str:
    return "1 launch" if number == 1 else f"{number} launches"


def _is(number: int) -> str:
    return "is" if number == 1 else "are"
