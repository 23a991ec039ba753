"""What is wrong with each field of a refused message, and what is allowed there."""

from collections.abc import Sequence
from typing import Any, Union, get_args, get_origin

from fastapi import Request
from pydantic import BaseModel

from service.contract.builds import Wire

MAX_PROBLEMS = 50
_LIMITS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<", "min_length": "at least", "max_length": "at most"}


class FieldProblem(Wire):
    """One bad field."""

    field: str
    """Where it is, such as ``body.blocks`` or ``query.limit``."""
    problem: str
    allowed: str | None = None
    got: str | None = None
    """What was sent, shortened to 80 characters."""


def explain(problems: Sequence[Any], request: Request) -> list[FieldProblem]:
    """Return the problems by field, at most MAX_PROBLEMS of them."""
    return [_explain(problem, request) for problem in problems[:MAX_PROBLEMS]]


def _explain(problem: dict[str, Any], request: Request) -> FieldProblem:
    location = tuple(problem["loc"])
    field = ".".join(str(part) for part in location)
    if location == ("body",) and not request.headers.get("content-type", "").startswith("application/json"):
        return FieldProblem(
            field=field, problem="a JSON body is needed, with the header Content-Type: application/json"
        )
    allowed = _allowed(problem, location, request) or None
    if problem["type"] == "extra_forbidden":
        return FieldProblem(field=field, problem="there is no such field", allowed=allowed)
    if problem["type"] == "missing":
        return FieldProblem(field=field, problem=_text(problem))
    shown = repr(problem.get("input"))
    got = shown if len(shown) <= 80 else shown[:77] + "..."
    return FieldProblem(field=field, problem=_text(problem), allowed=allowed, got=got)


def _text(problem: dict[str, Any]) -> str:
    text = str(problem["msg"]).removeprefix("Value error, ")
    return text[:1].lower() + text[1:]


def _allowed(problem: dict[str, Any], location: tuple[Any, ...], request: Request) -> str:
    context = problem.get("ctx") or {}
    if problem["type"] == "extra_forbidden":
        return ", ".join(_names_at(request, location[1:-1]))
    for key in ("expected", "expected_tags", "pattern"):
        if key in context:
            return str(context[key])
    limits = [f"{word} {context[key]}" for key, word in _LIMITS.items() if key in context]
    return " and ".join(limits)


def _names_at(request: Request, path: Sequence[Any]) -> list[str]:
    """Return the names of the fields of the model at ``path`` of the route's body; empty where it can't be told."""
    field = getattr(request.scope.get("route"), "body_field", None)
    models = _models(getattr(getattr(field, "field_info", None), "annotation", None))
    for part in path:
        if isinstance(part, str) and not any(part in model.model_fields for model in models):
            continue  # the tag of a union, which is no field
        if isinstance(part, str):
            models = [
                inner
                for model in models
                if part in model.model_fields
                for inner in _models(model.model_fields[part].annotation)
            ]
    return sorted({name for model in models for name in model.model_fields})


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Return the models inside an annotation such as ``list[A | B]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) is Union or get_args(annotation):
        return [model for argument in get_args(annotation) for model in _models(argument)]
    return []
