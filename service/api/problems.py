"""Every error on the wire is RFC 9457 problem+json, with a stable code and what is allowed instead.

Members: ``type`` (a URN made of the code), ``title`` (the same for every error of that code), ``status``, ``detail``
(this case, for people), ``code`` and ``retryable`` (for programs), then what helps: ``errors`` (one entry per bad
field), ``allowed``, and whatever details the error carries, such as ``size_bytes`` of offset_mismatch.
"""

import json
from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from service.api.fields import FieldProblem, explain
from service.contract import PROTOCOL_VERSION
from service.contract.errors import (
    BackslideError,
    InvalidInput,
    MalformedBody,
    MethodNotAllowed,
    NotFound,
    ProtocolUnsupported,
)

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 2
"""Sent as Retry-After with every retryable error."""
_RESERVED = frozenset({"type", "title", "status", "detail", "code", "retryable"})


def every_error(root: type[BackslideError] = BackslideError) -> Iterator[type[BackslideError]]:
    """Yield the tree of errors, parents first."""
    yield root
    for child in root.__subclasses__():
        yield from every_error(child)


def codes() -> list[str]:
    """Return every code that can appear on the wire, sorted."""
    return sorted({error.code for error in every_error()})


class Problem(BaseModel):
    """The body of every error."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["urn:backslide:problem:unknown_build"])
    title: str
    status: int
    detail: str
    code: str = Field(json_schema_extra={"enum": codes()})  # type: ignore[dict-item]
    retryable: bool
    errors: list[FieldProblem] | None = None
    allowed: list[str] | None = None
    error_id: str | None = None
    """Of code ``internal`` only: the same id is in the controller's log, beside the traceback."""


RESPONSES: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "Any error, as RFC 9457 problem+json; branch on `code`, never on the text.",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
}
"""For every router under /api/v1; the schema itself is added by :func:`document`."""


def body_of(error: BackslideError) -> dict[str, Any]:
    """Return the problem's members; details that are None or would hide a standard member are left out."""
    details = {key: value for key, value in error.details.items() if key not in _RESERVED and value is not None}
    return {
        "type": f"urn:backslide:problem:{error.code}",
        "title": (type(error).__doc__ or "").strip().splitlines()[0],
        "status": error.status,
        "detail": error.message,
        "code": error.code,
        "retryable": error.retryable,
        **details,
    }


def response_to(error: BackslideError) -> Response:
    """Return the HTTP response for an error of ours."""
    headers = {}
    if error.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="backslide"'
    if error.retryable:
        headers["Retry-After"] = str(RETRY_AFTER_S)
    if error.status == 405 and error.details.get("allowed"):
        headers["Allow"] = ", ".join(error.details["allowed"])
    # ASCII: half of a surrogate pair, which JSON can carry and UTF-8 cannot, may be part of what is wrong.
    content = json.dumps(body_of(error), default=str)
    return Response(content, status_code=error.status, headers=headers, media_type=MEDIA_TYPE)


def from_validation(error: RequestValidationError, request: Request) -> BackslideError:
    """Return what a refused body or parameter means: bad JSON, another protocol, or fields that are wrong."""
    problems = error.errors()
    if problems and problems[0].get("type") == "json_invalid":
        return _malformed(problems[0], error.body)
    sent = error.body.get("protocol_version") if isinstance(error.body, dict) else None
    if sent is not None and sent != PROTOCOL_VERSION:
        return ProtocolUnsupported(
            f"This controller speaks protocol version {PROTOCOL_VERSION}, the message is of version {sent!r:.40}.",
            allowed=[str(PROTOCOL_VERSION)],
        )
    fields = explain(problems, request)
    named = "; ".join(f"{field.field}: {field.problem}" for field in fields[:3])
    more = f"; and {len(fields) - 3} more" if len(fields) > 3 else ""
    return InvalidInput(f"{named}{more}.", errors=[field.model_dump(exclude_none=True) for field in fields])


def from_http(error: HTTPException, request: Request) -> BackslideError:
    """Return what a routing or body-reading error of the framework means in our tree."""
    cause: BaseException | None = error.__cause__
    if isinstance(cause, BackslideError):
        return cause
    method, path = request.method, request.url.path
    if error.status_code == 404:
        return NotFound(f"There is nothing at {path}. The interface is described at /api/v1/openapi.json.")
    if error.status_code == 405:
        allowed = sorted((error.headers or {}).get("Allow", "").replace(" ", "").split(","))
        return MethodNotAllowed(f"{path} does not take {method}, only {', '.join(allowed)}.", allowed=allowed)
    if isinstance(cause, RecursionError):
        return MalformedBody("The body is nested too deeply.")
    if isinstance(cause, UnicodeDecodeError):
        return MalformedBody(f"The body is not UTF-8: byte {cause.start} can't be decoded.")
    return MalformedBody(f"The body could not be read: {cause or error.detail}.")


def _malformed(problem: dict[str, Any], text: Any) -> MalformedBody:
    position = int(problem["loc"][-1])
    document = text if isinstance(text, str) else ""
    line = document.count("\n", 0, position) + 1
    column = position - document.rfind("\n", 0, position)
    reason = str(problem.get("ctx", {}).get("error", "not JSON"))
    return MalformedBody(
        f"The body is not valid JSON at line {line}, column {column}: {reason}.", line=line, column=column
    )


def document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document with the Problem schema; the framework's own error schemas are taken out."""
    schema = FastAPI.openapi(app)
    schemas = schema.setdefault("components", {}).setdefault("schemas", {})
    own = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas.update(own.pop("$defs", {}))
    schemas["Problem"] = own
    for operations in schema["paths"].values():
        for operation in operations.values():
            operation.get("responses", {}).pop("422", None)
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    return schema
