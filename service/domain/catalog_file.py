"""Builds, recipe and workload as the TOML file that ``backslide … register FILE`` takes."""

import json
import re
from collections.abc import Iterable
from typing import Any

from service.contract.builds import BuildSpec
from service.contract.recipes import Recipe
from service.contract.workloads import Workload


def write(builds: Iterable[BuildSpec], recipe: Recipe, workload: Workload) -> str:
    """Return the file. Read back it registers the same digests."""
    tables = [
        ("builds", one.model_dump(mode="json", include={"name", "version", "source", "dated_at"})) for one in builds
    ]
    tables.append(("recipes", recipe.model_dump(mode="json")))
    tables.append(("workloads", workload.model_dump(mode="json")))
    return "\n\n".join(_table(name, body) for name, body in tables) + "\n"


def _table(name: str, body: dict[str, Any]) -> str:
    return "\n".join([f"[[{name}]]", *(f"{key} = {_value(value)}" for key, value in body.items() if _is_said(value))])


def _value(value: Any) -> str:
    """TOML's basic strings, numbers and truth values are written as JSON's; tables and nothing are not."""
    if isinstance(value, dict):
        pairs = (f"{_key(key)} = {_value(item)}" for key, item in value.items() if _is_said(item))
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _is_said(value: Any) -> bool:
    """Nothing, and an empty list or table, are what a field is without being written."""
    return value is not None and value not in ([], {})


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
