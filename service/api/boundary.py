"""The outermost layer of the controller: bodies have a limit, and nothing unexpected shows its inside on the wire."""

import logging
import re
import secrets

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.problems import response_to
from service.contract.errors import BackslideError, InvalidInput, TooLarge

MAX_JSON_BYTES = 8 * 2**20
MAX_LOG_CHUNK_BYTES = 4 * 2**20
_ARTIFACT = re.compile(r"/api/v1/agent/attempts/[^/]+/artifacts/[^/]+")
_LOG = re.compile(r"/api/v1/agent/attempts/[^/]+/log")
_log = logging.getLogger("backslide.api")


class Boundary:
    """ASGI middleware. A body that grows past its limit raises TooLarge where it is read, at the first byte too many;
    one that says so in its Content-Length is refused before a byte of it is read. An exception that nobody handled is
    logged with its traceback under a random id, and only the id is answered."""

    def __init__(self, app: ASGIApp, max_artifact_bytes: int) -> None:
        self.app = app
        self.max_artifact_bytes = max_artifact_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False
        if "\x00" in scope["path"] or b"%00" in scope["query_string"]:
            # No database takes it in a text, and PostgreSQL fails the whole statement.
            await response_to(InvalidInput("An address can't contain the character NUL."))(scope, receive, send)
            return

        async def watched_send(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self.app(scope, self._limited(scope, receive), watched_send)
        except ClientDisconnect:
            return
        except BackslideError as error:
            if started:
                raise
            await response_to(error)(scope, receive, send)
        except Exception:
            error_id = f"err_{secrets.token_hex(6)}"
            _log.exception("unexpected error %s in %s %s", error_id, scope["method"], scope["path"])
            if started:
                raise
            detail = f"Something went wrong inside the controller; its log has the details under {error_id}."
            await response_to(BackslideError(detail, error_id=error_id))(scope, receive, send)

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        limit = self._limit(scope["path"])
        declared = dict(scope["headers"]).get(b"content-length", b"")
        if declared.isdigit() and int(declared) > limit:
            raise _too_large(limit)
        read = 0

        async def limited() -> Message:
            nonlocal read
            message = await receive()
            if message["type"] == "http.request":
                read += len(message.get("body", b""))
                if read > limit:
                    raise _too_large(limit)
            return message

        return limited

    def _limit(self, path: str) -> int:
        if _ARTIFACT.fullmatch(path):
            return self.max_artifact_bytes
        return MAX_LOG_CHUNK_BYTES if _LOG.fullmatch(path) else MAX_JSON_BYTES


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"The body may hold at most {limit} bytes here.", limit_bytes=limit)
