"""Launches and the files they left: /api/v1/launches."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import FileResponse

from service.actions import catalog, launches
from service.actions.views import LaunchView
from service.api.problems import RESPONSES
from service.contract.errors import NotFound
from service.security import Ctx

router = APIRouter(prefix="/api/v1", tags=["launches"], responses=RESPONSES)


@router.get("/launches")
def list_launches(
    ctx: Ctx,
    cell: Annotated[str | None, Query(description="Digest of a cell.")] = None,
    build: Annotated[str | None, Query(description="Id of a build, or a name: its newest registration.")] = None,
    request: Annotated[str | None, Query(description="Id of a request.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> list[LaunchView]:
    """Launches, newest first, invalid ones included: ``validity`` says which may be used."""
    if build is not None:
        build = catalog.find_build(ctx, build).id
    return list(launches.list_launches(ctx, cell=cell, build=build, request=request, limit=limit))


@router.get("/launches/{launch_id}")
def get_launch(ctx: Ctx, launch_id: str) -> LaunchView:
    """One launch: its numbers, validity, and the evidence they were computed from."""
    return launches.get_launch(ctx, launch_id)


@router.get(
    "/launches/{launch_id}/artifacts/{name}",
    response_class=FileResponse,
    responses={200: {"content": {"application/octet-stream": {}}, "description": "The file's bytes."}},
)
def get_artifact(ctx: Ctx, launch_id: str, name: str) -> FileResponse:
    """A file of the launch, by the name it was uploaded under."""
    found, path = launches.get_artifact(ctx, launch_id, name)
    if not path.is_file():
        raise NotFound(f"The bytes of {found.name} are gone from the controller's files.", sha256=found.sha256)
    headers = {"ETag": f'"{found.sha256}"', "X-Content-Type-Options": "nosniff"}
    return FileResponse(path, filename=found.name, media_type="application/octet-stream", headers=headers)
