"""Reading the evidence."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from service.actions.context import Context
from service.actions.pictures import artifact_view, build_view, evaluation_view, repetition_view
from service.actions.views import ArtifactView, LaunchView, RepetitionView
from service.contract.builds import BuildKind
from service.contract.cells import Cell
from service.contract.errors import NotFound
from service.contract.upload import LaunchReport
from service.store import attempts, catalog, evaluations, launches, runners
from service.store.engine import Session
from service.store.tables import Attempt, BuildRow, CellRow, Launch


def get_launch(ctx: Context, launch_id: str) -> LaunchView:
    """Return everything about one launch; raises NotFound."""
    with ctx.store.read() as session:
        row = launches.find(session, launch_id)
        if row is None:
            raise NotFound(f"There is no launch {launch_id!r}.")
        return _views(session, [row])[0]


def list_launches(
    ctx: Context, *, cell: str | None = None, build: str | None = None, request: str | None = None, limit: int = 100
) -> list[LaunchView]:
    """Return up to ``limit`` (1 to 1000) launches, newest first, of a cell (digest), build (id) and request (id).

    Invalid ones are among them, marked as such.
    """
    with ctx.store.read() as session:
        bounded = max(1, min(limit, 1000))
        return _views(session, launches.newest(session, cell=cell, build=build, request=request, limit=bounded))


def get_artifact(ctx: Context, launch_id: str, name: str) -> tuple[ArtifactView, Path]:
    """Return a file of a launch, and where its bytes are; raises NotFound, naming the files there are."""
    with ctx.store.read() as session:
        row = launches.find(session, launch_id)
        if row is None:
            raise NotFound(f"There is no launch {launch_id!r}.")
        found = attempts.artifact(session, row.attempt_id, name)
        if found is None:
            names = [artifact.name for artifact in attempts.artifacts(session, [row.attempt_id])]
            raise NotFound(f"The launch has no file {name!r}; it has: {', '.join(names) or 'none'}.", known=names)
        return artifact_view(found), ctx.blobs.path(found.sha256)


def _views(session: Session, rows: Sequence[Launch]) -> list[LaunchView]:
    builds = catalog.some_of(session, BuildRow, {row.build_id for row in rows})
    cells = catalog.cells(session, {row.cell_digest for row in rows})
    owners = {row.id: row for row in runners.everyone(session)}
    slots = {slot.id: slot for slot in runners.slots(session, {row.runner_id for row in rows})}
    tries = {row.id: row for row in attempts.of_jobs(session, {row.job_id for row in rows})}
    files: dict[str, list[ArtifactView]] = defaultdict(list)
    for artifact in attempts.artifacts(session, {row.attempt_id for row in rows}):
        files[artifact.attempt_id].append(artifact_view(artifact))
    repetitions: dict[str, list[RepetitionView]] = defaultdict(list)
    for repetition in launches.repetitions(session, {row.id for row in rows}):
        repetitions[repetition.launch_id].append(repetition_view(repetition))
    evaluated = evaluations.of_launches(session, {row.id for row in rows})
    return [
        LaunchView(
            **_own(row, builds[row.build_id], cells[row.cell_digest], tries[row.attempt_id]),
            runner_name=owners[row.runner_id].name,
            hostname=owners[row.runner_id].hostname,
            agent_version=owners[row.runner_id].agent_version,
            slot_index=slots[row.slot_id].index,
            repetitions=repetitions[row.id],
            evaluation=evaluation_view(evaluated[row.id]) if row.id in evaluated else None,
            artifacts=files[row.attempt_id],
        )
        for row in rows
    ]


def _own(row: Launch, build: BuildRow, stored: CellRow, attempt: Attempt) -> dict[str, object]:
    cell = Cell.model_validate(stored.body)
    return {
        "id": row.id,
        "attempt_id": row.attempt_id,
        "attempt_number": attempt.number,
        "job_id": row.job_id,
        "request_id": row.request_id,
        "build": build_view(build),
        "cell_digest": row.cell_digest,
        "cell": cell,
        "hardware": cell.hardware,
        "simulated": build.kind == BuildKind.SIMULATED,
        "time_compression": cell.recipe.time_compression,
        "runner_id": row.runner_id,
        "slot_id": row.slot_id,
        "block": row.block,
        "position": row.position,
        "validity": row.validity,
        "metrics": row.metrics,
        "report": LaunchReport.model_validate(row.report),
        "created_at": row.created_at,
    }
