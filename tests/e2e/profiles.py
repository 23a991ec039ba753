"""Other truths: copies of the simulated profiles in which chosen versions behave otherwise."""

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from images.catalog import builds

Change = Callable[[str], Mapping[str, Any]]
"""What differs in the profile of a version, by key; a table is written at the end."""

START_S = 0.3
"""Real seconds until a build is ready: the tests don't wait for the usual 1.5."""


def all_alike(folder: Path, change: Change) -> Path:
    """Write every version as v0.18.0 is, but for its own version and commit, ``START_S``, and what ``change`` says."""
    return _write(folder, lambda own: {**_read("v0.18.0"), "version": own["version"], "commit": own["commit"]}, change)


def as_published(folder: Path, change: Change) -> Path:
    """Write every version as it comes with the project, but for ``START_S`` and what ``change`` says."""
    return _write(folder, lambda own: own, change)


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((builds.PROFILES / f"{name}.toml").read_text())


def _write(folder: Path, base: Callable[[dict[str, Any]], dict[str, Any]], change: Change) -> Path:
    folder.mkdir()
    for path in builds.PROFILES.glob("v*.toml"):
        body = {**base(_read(path.stem)), "start_s": START_S, **change(path.stem)}
        plain = [f"{key} = {_value(value)}" for key, value in body.items() if not isinstance(value, Mapping)]
        tables = [
            "\n".join([f"[{key}]", *(f"{name} = {_value(item)}" for name, item in value.items())])
            for key, value in body.items()
            if isinstance(value, Mapping)
        ]
        (folder / path.name).write_text("\n".join([*plain, *tables]) + "\n")
    return folder


def _value(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
