"""The lineup that a bisect searches: registered builds from the good end to the bad end, equal ones merged."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from service.contract.errors import InvalidInput
from service.domain import versions


@dataclass(frozen=True)
class Registered:
    """A registered build: its name, upstream's version, the digest of what it is, and upstream's date if known."""

    name: str
    version: str
    digest: str
    dated_at: datetime | None = None


@dataclass(frozen=True)
class Node:
    """One place of the lineup: builds next to each other that serve the same thing; the first stands for all."""

    builds: tuple[Registered, ...]

    @property
    def build(self) -> Registered:
        return self.builds[0]

    @property
    def name(self) -> str:
        return " = ".join(build.name for build in self.builds)


@dataclass(frozen=True)
class Lineup:
    """At least two nodes, from good to bad. ``left_out``: builds without a place in upstream's order."""

    nodes: tuple[Node, ...]
    left_out: tuple[Registered, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes)


def between(builds: Sequence[Registered], good: str, bad: str) -> Lineup:
    """Return the lineup of all ``builds`` from ``good`` to ``bad`` (names), in upstream's order.

    Builds that have no place in that order (a nightly or a commit without a date) are left out and named. Raises
    InvalidInput when an end is not among the builds or has no place, when good does not come before bad, and when both
    serve the same thing. Nothing between the ends is fine: then they are the two nodes.
    """
    ends = _find(builds, good), _find(builds, bad)
    dates = {build.name: build.dated_at for build in builds if build.dated_at is not None}
    known = {build.name: build.version for build in builds}
    placed = {name for name, version in known.items() if versions.parse(version) is not None or name in dates}
    for end, role in zip(ends, ("good", "bad"), strict=True):
        if end.name not in placed:
            raise InvalidInput(
                f"{end.name}, the {role} end, has no place in upstream's order: give its date, or give the lineup in "
                "its order"
            )
    ordered = versions.arrange({name: known[name] for name in placed}, dates)
    first, last = ordered.index(ends[0].name), ordered.index(ends[1].name)
    if first >= last:
        raise InvalidInput(f"the good end, {good}, does not come before the bad end, {bad}")
    by_name = {build.name: build for build in builds}
    left_out = tuple(build for build in by_name.values() if build.name not in placed)
    return Lineup(_merge([by_name[name] for name in ordered[first : last + 1]]), left_out)


def given(builds: Sequence[Registered], good: str, bad: str) -> Lineup:
    """Return the lineup of ``builds`` in the order given, from ``good`` to ``bad``; what lies outside is not used.

    Raises InvalidInput when an end is missing, when good does not come before bad, when a build is given twice, and
    when both ends serve the same thing.
    """
    names = [build.name for build in builds]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidInput(f"the lineup names {', '.join(repeated)} more than once")
    first, last = names.index(_find(builds, good).name), names.index(_find(builds, bad).name)
    if first >= last:
        raise InvalidInput(f"in the lineup the good end, {good}, does not come before the bad end, {bad}")
    return Lineup(_merge(builds[first : last + 1]))


def _find(builds: Sequence[Registered], name: str) -> Registered:
    for build in builds:
        if build.name == name:
            return build
    raise InvalidInput(f"{name} is not among the builds of the lineup")


def _merge(builds: Sequence[Registered]) -> tuple[Node, ...]:
    """Neighbours with one digest become one node. A digest that comes back later stays apart: others lie between."""
    groups: list[list[Registered]] = []
    for build in builds:
        if groups and groups[-1][0].digest == build.digest:
            groups[-1].append(build)
        else:
            groups.append([build])
    if groups[0][0].digest == groups[-1][0].digest:
        raise InvalidInput(f"{builds[0].name} and {builds[-1].name} serve the same thing: their digests are equal")
    return tuple(Node(tuple(group)) for group in groups)
