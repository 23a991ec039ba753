"""Reading requests and jobs."""

from collections import defaultdict
from collections.abc import Sequence

from service.actions.context import Context
from service.actions.pictures import attempt_view, build_view, job_view, request_summary
from service.actions.views import AttemptView, JobView, RequestSummary, RequestView
from service.contract.errors import NotFound
from service.store import attempts, catalog, guards, jobs, launches, requests, runners
from service.store.engine import Session
from service.store.tables import Attempt, BuildRow, Job, Launch, RequestRow, Runner, Slot


def get_request(ctx: Context, request_id: str) -> RequestView:
    """Return a request with its jobs, by block and position; raises NotFound."""
    with ctx.store.read() as session:
        row = guards.fresh(session, RequestRow, request_id)
        if row is None:
            raise NotFound(f"There is no request {request_id!r}.")
        summary = _summaries(session, [row])[0]
        return RequestView(**dict(summary), jobs=job_views(session, jobs.of_request(session, request_id)))


def list_requests(ctx: Context, limit: int = 50, before: str | None = None) -> list[RequestSummary]:
    """Return up to ``limit`` (1 to 200) requests, newest first, from the one after ``before`` (an id) on.

    Raises NotFound if ``before`` is no request.
    """
    with ctx.store.read() as session:
        last = guards.fresh(session, RequestRow, before) if before else None
        if before and last is None:
            raise NotFound(f"There is no request {before!r}.")
        return _summaries(session, requests.newest(session, max(1, min(limit, 200)), last))


def get_job(ctx: Context, job_id: str) -> JobView:
    """Return one job with its newest attempt; raises NotFound."""
    with ctx.store.read() as session:
        row = guards.fresh(session, Job, job_id)
        if row is None:
            raise NotFound(f"There is no job {job_id!r}.")
        return job_views(session, [row])[0]


def _summaries(session: Session, rows: Sequence[RequestRow]) -> list[RequestSummary]:
    cells = catalog.cells(session, {row.cell_digest for row in rows})
    ids = {row.body[side] for row in rows for side in ("base_id", "head_id")}
    builds = {key: build_view(row) for key, row in catalog.some_of(session, BuildRow, ids).items()}
    counts = requests.count_jobs(session, [row.id for row in rows])
    return [request_summary(row, cells[row.cell_digest], builds, counts[row.id]) for row in rows]


def job_views(session: Session, rows: Sequence[Job]) -> list[JobView]:
    """Return jobs, each with its newest attempt and the launch that counts."""
    ids = [row.id for row in rows]
    builds = {
        key: build_view(row) for key, row in catalog.some_of(session, BuildRow, {row.build_id for row in rows}).items()
    }
    tries: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in attempts.of_jobs(session, ids):
        tries[attempt.job_id].append(attempt)
    yields: dict[str, list[Launch]] = defaultdict(list)
    for launch in launches.of_jobs(session, ids):
        yields[launch.job_id].append(launch)
    newest = _attempt_views(session, [tries[key][-1] for key in ids if tries[key]])
    return [job_view(row, builds[row.build_id], len(tries[row.id]), newest.get(row.id), yields[row.id]) for row in rows]


def _attempt_views(session: Session, rows: Sequence[Attempt]) -> dict[str, AttemptView]:
    owners: dict[str, Runner] = {row.id: row for row in runners.everyone(session)}
    slots: dict[str, Slot] = {row.id: row for row in runners.slots(session, {row.runner_id for row in rows})}
    return {row.job_id: attempt_view(row, owners[row.runner_id], slots[row.slot_id]) for row in rows}
