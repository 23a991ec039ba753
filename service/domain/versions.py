"""Upstream's versions in order: releases, candidates, post releases, nightlies and commits.

What has a PEP 440 version (with or without a leading v) is ordered by it. ``nightly-<40 hex>`` and a bare commit hash
say nothing about their place: they need a date.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum

from packaging.version import InvalidVersion, Version

from service.contract.errors import InvalidInput

_NIGHTLY = re.compile(r"nightly-([0-9a-f]{40})")
_COMMIT = re.compile(r"[0-9a-f]{7,40}")


class Kind(StrEnum):
    """What a name stands for upstream."""

    RELEASE = "release"
    CANDIDATE = "candidate"
    POST = "post"
    NIGHTLY = "nightly"
    COMMIT = "commit"
    OTHER = "other"


def kind(name: str) -> Kind:
    """Return what ``name`` stands for. A version with ``.dev`` is a nightly; digits alone are a release, no commit."""
    if _NIGHTLY.fullmatch(name):
        return Kind.NIGHTLY
    version = parse(name)
    if version is None:
        return Kind.COMMIT if _COMMIT.fullmatch(name) else Kind.OTHER
    if version.is_devrelease:
        return Kind.NIGHTLY
    if version.is_prerelease:
        return Kind.CANDIDATE
    return Kind.POST if version.is_postrelease else Kind.RELEASE


def commit(name: str) -> str | None:
    """Return the commit that a name spells out, whole or shortened; None where it spells out none."""
    if found := _NIGHTLY.fullmatch(name):
        return found.group(1)
    if kind(name) is Kind.COMMIT:
        return name
    version = parse(name)
    local = version.local if version is not None else None
    return local[1:] if local and local[0] == "g" and _COMMIT.fullmatch(local[1:]) else None


def arrange(versions: Mapping[str, str], dates: Mapping[str, datetime]) -> list[str]:
    """Return the names of ``versions`` (name -> version) in one total order, oldest first.

    Names with a PEP 440 version are in its order. Of the others each comes directly after the highest version whose
    date is not later than its own (before all, if there is none), by date and then by name. Equal versions are in the
    order of their names. Dates are aware, or all naive. Raises InvalidInput for a name with neither version nor date.
    """
    for name, version in versions.items():
        if parse(version) is None and name not in dates:
            raise InvalidInput(f"{name} has no version that can be ordered and no date: give the lineup in its order")
    backbone = sorted(
        (name for name in versions if parse(versions[name])), key=lambda name: _rank(versions[name], name)
    )
    unversioned = [name for name in versions if parse(versions[name]) is None]
    behind: dict[int, list[str]] = {}
    for name in unversioned:
        before = [i for i, other in enumerate(backbone) if other in dates and dates[other] <= dates[name]]
        behind.setdefault(before[-1] if before else -1, []).append(name)
    arranged: list[str] = []
    for i in range(-1, len(backbone)):
        arranged += backbone[i : i + 1] if i >= 0 else []
        arranged += sorted(behind.get(i, []), key=lambda name: (dates[name], name))
    return arranged


def parse(name: str) -> Version | None:
    """Return the PEP 440 version that ``name`` stands for (``v0.19.1``, ``0.20.0rc1``, ``0.19.2.dev41+g1a2b3c4``).

    None when it stands for none, such as a branch or a bare commit.
    """
    try:
        return Version(name.strip().removeprefix("v"))
    except InvalidVersion:
        return None


def order(names: Iterable[str]) -> list[str]:
    """Return the names from the oldest version to the newest; names that are no versions come last, alphabetically.

    By PEP 440 a nightly (``.dev``) and a candidate come before their release, and a post release after it.
    """
    return sorted(names, key=_rank)


def neighbours(names: Sequence[str], name: str) -> tuple[str | None, str | None]:
    """Return the versions directly before and after ``name`` among ``names``, by version; None where there is none.

    ``name`` need not be one of them. What is no version has no neighbours.
    """
    version = parse(name)
    if version is None:
        return None, None
    others = [(other, parsed) for other in order(names) if (parsed := parse(other)) is not None]
    before = [other for other, parsed in others if parsed < version]
    after = [other for other, parsed in others if parsed > version]
    return (before[-1] if before else None), (after[0] if after else None)


def _rank(version: str, name: str | None = None) -> tuple[bool, Version, str]:
    parsed = parse(version)
    return (parsed is None, parsed or Version("0"), name or version)
