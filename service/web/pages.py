"""The pages and their ``.json`` twins: ``/``, ``/bisects``, ``/bisects/{id}``, ``/requests/{id}``,
``/compare/{base}...{head}``, ``/launches`` and ``/launches/{id}``. Reads only; changes are made over REST."""

from dataclasses import dataclass
from urllib.parse import quote, urlencode

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.staticfiles import StaticFiles

from service.actions import bisect, catalog, compare, enrol, launches, requests
from service.actions.bisect_views import BisectSummary
from service.actions.comparison_views import ComparisonView, MetricRow
from service.actions.context import Context
from service.actions.views import LaunchView, RequestSummary, RequestView
from service.contract.builds import Wire
from service.domain.states import RequestState, RunnerState
from service.ruler.metrics import METRICS
from service.web.bisects import add_bisects, is_open, refresh
from service.web.plots import plots_of, side_names
from service.web.rendering import Pages

RECENT = 25
"""Requests on the first page."""
LISTED = 200
"""Launches on their page."""
BISECTS = 10
"""Bisects on the first page."""


class Overview(Wire):
    """The first page as JSON: the newest bisects and comparisons, with the verdict of each that has launches."""

    bisects: list[BisectSummary]
    requests: list[RequestSummary]
    sentences: dict[str, str]
    verdicts: dict[str, str]
    runners_online: int


class RequestPage(Wire):
    """A request's page as JSON: the request, and its comparison as far as it is."""

    request: RequestView
    comparison: ComparisonView


def router_for(ctx: Context) -> APIRouter:
    """Return every page and twin over ``ctx``. They raise errors of ours; the app answers a browser with a page."""
    pages = Pages()
    router = APIRouter(include_in_schema=False)
    _add_overview(router, pages, ctx)
    add_bisects(router, pages, ctx)
    _add_requests(router, pages, ctx)
    _add_comparisons(router, pages, ctx)
    _add_launches(router, pages, ctx)
    return router


def mount_static(app: FastAPI) -> None:
    """Serve the style sheet and the icon under /static, from the installed package."""
    app.mount("/static", StaticFiles(packages=[("service.web", "static")]), name="static")


def _add_overview(router: APIRouter, pages: Pages, ctx: Context) -> None:
    @router.get("/index.json")
    def overview_json() -> Overview:
        return _overview(ctx)

    @router.get("/")
    def overview(request: Request) -> Response:
        found = _overview(ctx)
        open_ones = any(one.state is RequestState.OPEN for one in found.requests)
        open_ones = open_ones or any(is_open(one.state) for one in found.bisects)
        return pages.page(
            request, "overview.html", overview=found, refresh_s=refresh(request, open_ones), json_twin="/index.json"
        )


def _add_requests(router: APIRouter, pages: Pages, ctx: Context) -> None:
    @router.get("/requests/{request_id}.json")
    def request_json(request_id: str) -> RequestPage:
        return RequestPage(
            request=requests.get_request(ctx, request_id), comparison=compare.compare_request(ctx, request_id)
        )

    @router.get("/requests/{request_id}")
    def request_page(request: Request, request_id: str) -> Response:
        found = requests.get_request(ctx, request_id)
        comparison = compare.compare_request(ctx, request_id)
        row = comparison.rows[0]
        return pages.page(
            request,
            "request.html",
            asked=found,
            comparison=comparison,
            row=row,
            values={one.launch.id: one.launch.metrics.get(row.metric) for one in comparison.launches},
            compare_url=_compare_url(found, row.metric),
            refresh_s=refresh(request, found.state is RequestState.OPEN),
            json_twin=f"/requests/{found.id}.json",
        )


def _add_comparisons(router: APIRouter, pages: Pages, ctx: Context) -> None:
    @router.get("/compare/{base}...{head}.json")
    def comparison_json(request: Request, base: str, head: str) -> ComparisonView:
        return _compare(ctx, base, head, request)

    @router.get("/compare/{base}...{head}")
    def comparison_page(request: Request, base: str, head: str) -> Response:
        view = _compare(ctx, base, head, request)
        return pages.page(
            request,
            "comparison.html",
            view=view,
            row=view.rows[0],
            names=side_names(view),
            plots=plots_of(view),
            files_of=_files,
            metric_links=[_metric_link(request, row) for row in view.rows],
            json_twin=f"/compare/{quote(base)}...{quote(head)}.json",
        )


def _add_launches(router: APIRouter, pages: Pages, ctx: Context) -> None:
    @router.get("/launches.json")
    def launches_json(request: Request) -> list[LaunchView]:
        return _listed(ctx, request)

    @router.get("/launches/{launch_id}.json")
    def launch_json(launch_id: str) -> LaunchView:
        return launches.get_launch(ctx, launch_id)

    @router.get("/launches")
    def launches_page(request: Request) -> Response:
        found = _listed(ctx, request)
        filters = {
            key: request.query_params[key] for key in ("build", "cell", "request") if key in request.query_params
        }
        return pages.page(
            request, "launches.html", launches=found, filters=filters, limit=LISTED, json_twin="/launches.json"
        )

    @router.get("/launches/{launch_id}")
    def launch_page(request: Request, launch_id: str) -> Response:
        found = launches.get_launch(ctx, launch_id)
        return pages.page(
            request,
            "launch.html",
            launch=found,
            metrics={name: info for name, info in METRICS.items() if _is_known(found, name)},
            files=_files(found),
            json_twin=f"/launches/{found.id}.json",
        )


def _overview(ctx: Context) -> Overview:
    newest = [one for one in requests.list_requests(ctx, limit=RECENT) if one.kind == "comparison"]
    measured = {one.id: compare.compare_request(ctx, one.id) for one in newest if one.launches_done}
    online = sum(runner.state is RunnerState.ONLINE for runner in enrol.list_runners(ctx))
    return Overview(
        bisects=bisect.list_bisects(ctx, limit=BISECTS),
        requests=newest,
        sentences={key: view.sentence for key, view in measured.items()},
        verdicts={key: view.verdict.value for key, view in measured.items()},
        runners_online=online,
    )


def _compare(ctx: Context, base: str, head: str, request: Request) -> ComparisonView:
    asked = request.query_params
    return compare.compare_builds(
        ctx,
        base,
        head,
        metric=asked.get("metric") or compare.DEFAULT_METRIC,
        cell=asked.get("cell") or None,
        recipe=asked.get("recipe") or None,
        workload=asked.get("workload") or None,
        request_id=asked.get("request") or None,
    )


def _listed(ctx: Context, request: Request) -> list[LaunchView]:
    asked = request.query_params
    build = catalog.find_build(ctx, asked["build"]).id if asked.get("build") else None
    cell, of_request = asked.get("cell") or None, asked.get("request") or None
    return launches.list_launches(ctx, cell=cell, build=build, request=of_request, limit=LISTED)


def _is_known(launch: LaunchView, metric: str) -> bool:
    return metric in launch.metrics or any(one.metrics.get(metric) is not None for one in launch.repetitions)


def _metric_link(request: Request, row: MetricRow) -> str:
    asked = {key: value for key, value in request.query_params.items() if key != "metric"}
    return "?" + urlencode(sorted({**asked, "metric": row.metric}.items()))


def _compare_url(request: RequestView, metric: str) -> str:
    query = {"request": request.id} if metric == compare.DEFAULT_METRIC else {"metric": metric, "request": request.id}
    return f"/compare/{request.base.name}...{request.head.name}?{urlencode(query)}"


@dataclass(frozen=True)
class _File:
    """A file of a launch, and what it is."""

    what: str
    name: str
    sha256: str
    size_bytes: int
    url: str


def _files(launch: LaunchView) -> list[_File]:
    report = launch.report
    known = {report.prompts: "prompts (token ids)", report.identity.server_log: "server log"}
    known[report.warm_log] = "raw log of priming and warm-up"
    known |= {one.raw_log: f"raw log of repetition {one.number}" for one in report.repetitions}
    return [
        _File(
            known.get(one.sha256, one.name),
            one.name,
            one.sha256,
            one.size_bytes,
            f"/api/v1/launches/{launch.id}/artifacts/{one.name}",
        )
        for one in launch.artifacts
    ]
