"""The controller as an ASGI app: REST, the runner protocol, the pages, and the loops that run beside them."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from service import VERSION
from service.actions.context import Context
from service.api import agent, bisects, catalog, comparisons, launches, requests, runners, system
from service.api.boundary import Boundary
from service.api.problems import document, from_http, from_validation, response_to
from service.contract.errors import BackslideError, InvalidInput
from service.loops import rounds
from service.settings import DEFAULT_SECRET, Settings
from service.web.pages import mount_static, router_for
from service.web.rendering import Pages, wants_page

MIN_SECRET_CHARACTERS = 32
_ROUTERS = (agent, catalog, requests, bisects, launches, comparisons, runners, system)


def create_app(ctx: Context) -> FastAPI:
    """Return the app over ``ctx``; the caller closes the store after it. Raises InvalidInput when the settings are not
    fit for use, such as the default secret outside demo mode.

    ``app.state.stopping`` is a threading.Event: whoever stops the server sets it, so that held calls end at once.
    """
    check_secret(ctx.settings)
    app = FastAPI(
        title="Backslide",
        version=VERSION,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # both pages would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # a path is right or it is a problem
        lifespan=_lifespan,
    )
    app.state.ctx = ctx
    app.state.stopping = threading.Event()
    app.add_middleware(Boundary, max_artifact_bytes=ctx.settings.max_artifact_bytes)
    _handle_errors(app)
    for module in _ROUTERS:
        app.include_router(module.router)
    app.include_router(router_for(ctx))
    mount_static(app)
    app.openapi = lambda: _cached_document(app)  # type: ignore[method-assign]
    return app


def check_secret(settings: Settings) -> None:
    """Raise InvalidInput for a secret that others know or could guess; demo mode takes any."""
    secret = settings.secret.get_secret_value()
    if settings.demo:
        return
    if secret == DEFAULT_SECRET:
        raise InvalidInput(
            "BACKSLIDE_SECRET is not set, and the default is known to everybody: set it to 32 or more random "
            "characters (such as the output of 'openssl rand -hex 32'), or BACKSLIDE_DEMO=1 to try things out."
        )
    if len(secret) < MIN_SECRET_CHARACTERS:
        raise InvalidInput(
            f"BACKSLIDE_SECRET has {len(secret)} characters; {MIN_SECRET_CHARACTERS} or more are needed "
            "(such as the output of 'openssl rand -hex 32')."
        )


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    stopping = asyncio.Event()
    ctx: Context = app.state.ctx
    loops = [
        asyncio.create_task(rounds.run(ctx, stopping, one), name=one.name) for one in rounds.all_rounds(ctx.settings)
    ]
    try:
        yield
    finally:
        app.state.stopping.set()
        stopping.set()
        await asyncio.gather(*loops)


def _handle_errors(app: FastAPI) -> None:
    pages = Pages()

    def answer(request: Request, error: BackslideError) -> Response:
        return pages.error(request, error) if wants_page(request) else response_to(error)

    @app.exception_handler(BackslideError)
    async def _ours(request: Request, error: BackslideError) -> Response:
        return answer(request, error)

    @app.exception_handler(RequestValidationError)
    async def _refused(request: Request, error: RequestValidationError) -> Response:
        return answer(request, from_validation(error, request))

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        return answer(request, from_http(error, request))


def _cached_document(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        app.openapi_schema = document(app)
    return app.openapi_schema
