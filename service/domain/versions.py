"""Upstream's versions in order: releases, candidates, post releases and nightlies, with or without a leading v."""

from collections.abc import Iterable, Sequence

from packaging.version import InvalidVersion, Version


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


def _rank(name: str) -> tuple[bool, Version, str]:
    version = parse(name)
    return (version is None, version or Version("0"), name)
