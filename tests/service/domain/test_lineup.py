"""The lineup between two ends: order, equal builds, and errors that name the problem."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.contract.errors import InvalidInput
from service.domain import lineup
from service.domain.lineup import Registered

NIGHTLY = "nightly-0123456789abcdef0123456789abcdef01234567"
BUILDS = [Registered(name, name[1:], f"digest of {name}") for name in ("v0.18.0", "v0.9.2", "v0.19.0", "v0.18.1")]


def test_builds_between_the_ends_come_in_upstreams_order_and_others_are_not_used() -> None:
    assert lineup.between(BUILDS, "v0.18.0", "v0.19.0").names == ("v0.18.0", "v0.18.1", "v0.19.0")


def test_two_builds_are_a_lineup() -> None:
    assert lineup.between(BUILDS, "v0.18.0", "v0.18.1").names == ("v0.18.0", "v0.18.1")


def test_neighbours_that_serve_the_same_are_one_node_with_both_names() -> None:
    twin = Registered("v0.18.2", "0.18.2", "digest of v0.18.1")
    found = lineup.between([*BUILDS, twin], "v0.18.0", "v0.19.0")
    assert found.names == ("v0.18.0", "v0.18.1 = v0.18.2", "v0.19.0")
    assert found.nodes[1].build.name == "v0.18.1"


def test_a_digest_that_comes_back_after_another_stays_apart() -> None:
    builds = [Registered(f"v0.{i}.0", f"0.{i}.0", digest) for i, digest in enumerate(["a", "b", "a", "c"])]
    assert len(lineup.between(builds, "v0.0.0", "v0.3.0").nodes) == 4


def test_a_nightly_takes_its_place_by_date_and_is_left_out_and_named_without_one() -> None:
    dated = [
        Registered(b.name, b.version, b.digest, datetime(2026, i + 1, 1, tzinfo=UTC)) for i, b in enumerate(BUILDS)
    ]
    nightly = Registered(NIGHTLY, NIGHTLY, "nightly")
    without = lineup.between([*dated, nightly], "v0.18.0", "v0.19.0")
    assert without.names == ("v0.18.0", "v0.18.1", "v0.19.0")
    assert without.left_out == (nightly,)
    placed = Registered(NIGHTLY, NIGHTLY, "nightly", datetime(2026, 1, 9, tzinfo=UTC))
    assert lineup.between([*dated, placed], "v0.18.0", "v0.19.0").names == ("v0.18.0", NIGHTLY, "v0.18.1", "v0.19.0")


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ("v0.19.0", "v0.18.0", "the good end, v0.19.0, does not come before the bad end, v0.18.0"),
        ("v0.18.0", "v0.18.0", "does not come before"),
        ("v0.18.0", "v0.30.0", "v0.30.0 is not among the builds"),
        ("v0.18.0", NIGHTLY, f"{NIGHTLY}, the bad end, has no place"),
        ("v0.18.0", "v0.18.9", "serve the same thing"),
    ],
)
def test_ends_that_make_no_lineup_are_refused_by_name(good: str, bad: str, message: str) -> None:
    builds = [
        Registered("v0.18.0", "0.18.0", "one"),
        Registered("v0.18.9", "0.18.9", "one"),
        Registered("v0.19.0", "0.19.0", "two"),
        Registered(NIGHTLY, NIGHTLY, "three"),
    ]
    with pytest.raises(InvalidInput, match=message):
        lineup.between(builds, good, bad)


@given(st.permutations(BUILDS))
def test_a_given_lineup_keeps_its_order_between_its_ends(builds: list[Registered]) -> None:
    names = [build.name for build in builds]
    assert lineup.given(builds, names[0], names[-1]).names == tuple(names)
    assert lineup.given(builds, names[1], names[2]).names == tuple(names[1:3])
    with pytest.raises(InvalidInput, match=f"good end, {names[2]}, does not come before the bad end, {names[1]}"):
        lineup.given(builds, names[2], names[1])
    with pytest.raises(InvalidInput, match="more than once"):
        lineup.given([*builds, builds[0]], names[0], names[-1])
