"""Compare two builds by their stored launches. Nothing is measured here; what lacks is said."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.actions import accuracy, catalog, evidence, launches, requests
from service.actions.comparison_views import AccuracyView, CellSummary, ComparedLaunch, ComparisonView
from service.actions.context import Context
from service.actions.sentences import marks
from service.actions.submit import metric_name
from service.actions.views import BuildView, LaunchView, RequestView
from service.contract.builds import BuildKind
from service.contract.cells import differences
from service.contract.errors import Incomparable, InvalidInput, NotFound, UnknownBuild
from service.domain.accuracy import Gate
from service.domain.compare import Side
from service.domain.states import RequestState
from service.ruler.metrics import METRICS

DEFAULT_METRIC = "tpot_p50_ms"
CONFIDENCE = 0.95
MAX_LAUNCHES = 1000
"""The newest so many launches of a build are looked at."""


@dataclass(frozen=True)
class _Pair:
    """Two builds of one kind, and every launch of either that may count."""

    base: BuildView
    head: BuildView
    launches: Sequence[LaunchView]

    def cells(self, build: BuildView) -> dict[str, LaunchView]:
        """The newest launch of a build in each of its cells."""
        own = [launch for launch in self.launches if launch.build.id == build.id]
        return {launch.cell_digest: launch for launch in sorted(own, key=lambda one: one.created_at)}

    @property
    def shared(self) -> list[LaunchView]:
        """One launch for each cell that both were measured in; the most recently completed cell first."""
        base, head = self.cells(self.base), self.cells(self.head)
        both = sorted(
            base.keys() & head.keys(), key=lambda cell: min(base[cell].created_at, head[cell].created_at), reverse=True
        )
        return [head[cell] for cell in both]


def compare_builds(
    ctx: Context,
    base: str,
    head: str,
    *,
    metric: str = DEFAULT_METRIC,
    cell: str | None = None,
    recipe: str | None = None,
    workload: str | None = None,
    request_id: str | None = None,
) -> ComparisonView:
    """Return head next to base, by every launch of both in one cell, or by those of one request.

    ``cell`` (at least 6 hex digits of its hash), ``recipe`` and ``workload`` (name or id) narrow the choice; of several
    cells that both builds share, the newest is taken and the others are listed. Raises UnknownBuild, UnknownRecipe,
    UnknownWorkload, UnknownMetric, NotFound when neither was measured there, and Incomparable, with every difference,
    when they were measured in different cells only.
    """
    name = metric_name(metric)
    if request_id is not None:
        request = requests.get_request(ctx, request_id)
        if base not in (request.base.id, request.base.name) or head not in (request.head.id, request.head.name):
            raise InvalidInput(
                f"Request {request_id} compares {request.base.name} with {request.head.name}, not {base} with {head}."
            )
        return _of_request(ctx, request, name)
    pair = _chosen(_pairs(ctx, base, head, cell, recipe, workload))
    if pair.base.id == pair.head.id:
        raise InvalidInput(f"base and head are the same build ({pair.base.name}): there is nothing to compare.")
    if pair.shared:
        return _view(pair, [evidence.summary_of(launch) for launch in pair.shared], name)
    return _view(pair, [_only_cell(pair)], name)


def compare_request(ctx: Context, request_id: str, metric: str | None = None) -> ComparisonView:
    """Return the comparison that a request asked for, by its own launches alone; also while it is open.

    Raises NotFound and UnknownMetric.
    """
    request = requests.get_request(ctx, request_id)
    asked = request.metric if request.metric in METRICS else DEFAULT_METRIC  # a bisect may be about accuracy
    return _of_request(ctx, request, metric_name(metric or asked))


def _of_request(ctx: Context, request: RequestView, metric: str) -> ComparisonView:
    own = launches.list_launches(ctx, request=request.id, limit=MAX_LAUNCHES)
    cell = CellSummary(
        digest=request.cell_digest,
        recipe=request.recipe,
        workload=request.workload,
        hardware=request.hardware,
        simulated=request.build_kind is BuildKind.SIMULATED,
        time_compression=request.time_compression,
        ruler_version=own[0].cell.ruler_version if own else None,
    )
    view = _view(_Pair(request.base, request.head, own), [cell], metric)
    progress = _progress(request)
    return view.model_copy(update={"request_id": request.id, "notes": progress + view.notes})


def _progress(request: RequestView) -> list[str]:
    done = f"{request.launches_done} of {request.launches_wanted} launches"
    if request.state is RequestState.OPEN:
        return [f"The request is still open: {done} are done."]
    if request.state is RequestState.DONE:
        return []
    reason = f": {request.reason}" if request.reason else ""
    return [f"The request ended {request.state.value} with {done}{reason.rstrip('.')}."]


def _view(pair: _Pair, cells: Sequence[CellSummary], metric: str) -> ComparisonView:
    cell, names = cells[0], _names(pair)
    found = evidence.compared(
        (one for one in pair.launches if one.cell_digest == cell.digest), pair.base, pair.head, metric
    )
    rows = evidence.rows(found, names, metric, CONFIDENCE, marks(cell))
    answers = _accuracy(found, names, marks(cell))
    broken = answers is not None and answers.gate is Gate.BROKEN
    return ComparisonView(
        base=pair.base,
        head=pair.head,
        cell=cell,
        request_id=None,
        metric=metric,
        confidence=CONFIDENCE,
        verdict=rows[0].verdict,
        sentence=f"{answers.sentence} {rows[0].sentence}" if answers and broken else rows[0].sentence,
        marks=marks(cell),
        notes=evidence.notes(found, names, rows[0]),
        differences=evidence.start_differences(found, names),
        rows=rows,
        accuracy=answers,
        launches=found,
        other_cells=list(cells[1:]),
    )


def _accuracy(found: Sequence[ComparedLaunch], names: tuple[str, str], mark: str) -> AccuracyView | None:
    """An evaluation counts even if the launch's speed does not: another repetition says nothing about an answer."""
    base, head = (
        [one.launch.evaluation for one in found if one.side is side and one.launch.evaluation is not None]
        for side in Side
    )
    return accuracy.accuracy_of((base, head), names, mark)


def _names(pair: _Pair) -> tuple[str, str]:
    """A build that is compared with another of its name is told apart by more than the name."""
    base, head = pair.base, pair.head
    if base.name == head.name:
        return f"{base.name} ({base.id})", f"{head.name} ({head.id})"
    return base.name, head.name


def _pairs(
    ctx: Context, base: str, head: str, cell: str | None, recipe: str | None, workload: str | None
) -> list[_Pair]:
    """The builds that the names mean, once for each kind in which both exist: v0.18.0 may be simulated and real."""
    wanted = catalog.find_recipe(ctx, recipe) if recipe else None
    load = catalog.find_workload(ctx, workload) if workload else None
    pairs = []
    for kind in [wanted.recipe.build_kind] if wanted else list(BuildKind):
        try:
            sides = catalog.find_build(ctx, base, kind), catalog.find_build(ctx, head, kind)
        except UnknownBuild:
            continue
        found = [one for side in dict.fromkeys(s.id for s in sides) for one in _launches(ctx, side, cell)]
        kept = [
            one
            for one in found
            if (wanted is None or one.cell.recipe.digest == wanted.digest)
            and (load is None or one.cell.workload.digest == load.digest)
        ]
        pairs.append(_Pair(*sides, kept))
    if not pairs:
        one, other = catalog.find_build(ctx, base, None), catalog.find_build(ctx, head, None)
        raise Incomparable(
            f"{one.name} and {other.name} are not builds of one kind: {one.kind.value} and {other.kind.value}.",
            differences=[f"build kind: {one.kind.value} != {other.kind.value}"],
        )
    return pairs


def _launches(ctx: Context, build_id: str, cell: str | None) -> list[LaunchView]:
    found = launches.list_launches(ctx, build=build_id, limit=MAX_LAUNCHES)
    if cell is None:
        return found
    if len(cell) < 6:
        raise InvalidInput("A cell is named by at least 6 hex digits of its hash.")
    return [launch for launch in found if launch.cell_digest.startswith(cell)]


def _chosen(pairs: Sequence[_Pair]) -> _Pair:
    """The pair with the newest cell that both share; else one in which both, or one, or none was measured."""

    def rank(pair: _Pair) -> tuple[bool, float, int]:
        newest = pair.shared[0].created_at.timestamp() if pair.shared else 0.0
        return bool(pair.shared), newest, bool(pair.cells(pair.base)) + bool(pair.cells(pair.head))

    return max(pairs, key=rank)


def _only_cell(pair: _Pair) -> CellSummary:
    """The newest cell of the one side that was measured; raises when both were, elsewhere, or neither."""
    base, head = (list(pair.cells(build).values()) for build in (pair.base, pair.head))
    one, other = _names(pair)
    if not base and not head:
        raise NotFound(
            f"Neither {one} nor {other} has a launch that fits. Measure them: "
            f"backslide compare {pair.base.name} {pair.head.name} --measure"
        )
    if base and head:
        found = differences(base[-1].cell, head[-1].cell)
        raise Incomparable(f"{one} and {other} were not measured in one cell: {'; '.join(found)}.", differences=found)
    return evidence.summary_of((base or head)[-1])
