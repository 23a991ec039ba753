"""Versions in upstream's order."""

from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.contract.errors import InvalidInput
from service.domain import versions
from service.domain.versions import Kind

RELEASES = ["v0.18.0", "v0.18.1", "v0.19.0", "v0.19.1", "v0.20.0", "v0.21.0", "v0.22.0", "v0.23.0", "v0.24.0"]


def test_releases_are_ordered_by_number_and_not_by_text() -> None:
    assert versions.order(["v0.10.0", "v0.9.2", "0.9.10", "v0.18.0"]) == ["v0.9.2", "0.9.10", "v0.10.0", "v0.18.0"]


def test_nightly_candidate_release_and_post_release_follow_each_other() -> None:
    expected = ["0.19.1rc0", "0.19.1rc1.dev12+gabc1234", "0.19.1rc1", "v0.19.1", "v0.19.1.post1", "0.19.2.dev1"]
    assert versions.order(reversed(expected)) == expected


def test_what_is_no_version_comes_last_in_alphabetical_order() -> None:
    assert versions.order(["main", "v0.20.0", "b1c2d3e", "v0.19.0"]) == ["v0.19.0", "v0.20.0", "b1c2d3e", "main"]
    assert versions.parse("main") is None


@given(st.permutations(RELEASES))
def test_the_order_does_not_depend_on_the_order_given(names: list[str]) -> None:
    assert versions.order(names) == RELEASES


def test_neighbours_are_the_next_versions_on_either_side() -> None:
    assert versions.neighbours(RELEASES, "v0.19.1") == ("v0.19.0", "v0.20.0")
    assert versions.neighbours(RELEASES, "v0.18.0") == (None, "v0.18.1")
    assert versions.neighbours(RELEASES, "v0.24.0") == ("v0.23.0", None)


def test_neighbours_of_a_version_that_is_not_listed_surround_it() -> None:
    assert versions.neighbours(RELEASES, "0.22.1.dev3+gabc") == ("v0.22.0", "v0.23.0")
    assert versions.neighbours(RELEASES, "some-branch") == (None, None)


COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "fedcba9876543210fedcba9876543210fedcba98"
DAY = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "kind", "commit"),
    [
        ("v0.19.0", Kind.RELEASE, None),
        ("0.19.0rc1", Kind.CANDIDATE, None),
        ("v0.19.0.post1", Kind.POST, None),
        ("0.19.2.dev41+g1a2b3c4", Kind.NIGHTLY, "1a2b3c4"),
        (f"nightly-{COMMIT}", Kind.NIGHTLY, COMMIT),
        (COMMIT, Kind.COMMIT, COMMIT),
        ("1a2b3c4", Kind.COMMIT, "1a2b3c4"),
        ("main", Kind.OTHER, None),
        ("nightly-1a2b3c4", Kind.OTHER, None),
    ],
)
def test_a_name_says_what_it_is_and_which_commit(name: str, kind: Kind, commit: str | None) -> None:
    assert versions.kind(name) is kind
    assert versions.commit(name) == commit


def test_nightlies_and_commits_come_after_the_last_version_that_is_not_younger() -> None:
    dates = {
        "v0.18.0": DAY,
        "v0.19.0": DAY + timedelta(days=10),
        "v0.18.1": DAY + timedelta(days=12),
        f"nightly-{COMMIT}": DAY + timedelta(days=11),
        f"nightly-{OTHER}": DAY + timedelta(days=10, hours=1),
        "abcdef1": DAY - timedelta(days=1),
    }
    names = {name: name for name in dates} | {"v0.20.0": "0.20.0"}
    assert versions.arrange(names, dates) == [
        *("abcdef1", "v0.18.0", "v0.18.1", "v0.19.0"),
        *(f"nightly-{OTHER}", f"nightly-{COMMIT}", "v0.20.0"),
    ]


def test_a_nightly_without_a_date_is_named_and_refused() -> None:
    with pytest.raises(InvalidInput, match=f"nightly-{COMMIT} has no version"):
        versions.arrange({"v0.18.0": "0.18.0", f"nightly-{COMMIT}": f"nightly-{COMMIT}"}, {})


@given(
    st.dictionaries(
        st.sampled_from([*RELEASES, "0.19.0rc1", "v0.19.1.post1", "abcdef1", "abcdef2", f"nightly-{COMMIT}"]),
        st.integers(0, 20),
        min_size=1,
    ),
    st.randoms(use_true_random=False),
)
def test_the_arrangement_is_one_order_whatever_order_names_are_given_in(days: dict[str, int], random: Random) -> None:
    dates = {name: DAY + timedelta(days=number) for name, number in days.items()}
    shuffled = list(days)
    random.shuffle(shuffled)
    arranged = versions.arrange({name: name for name in days}, dates)
    assert arranged == versions.arrange({name: name for name in shuffled}, dates)
    assert sorted(arranged) == sorted(days)
    released = [name for name in arranged if versions.parse(name) is not None]
    assert released == versions.order(released)
    others = [name for name in arranged if versions.parse(name) is None]
    assert [dates[name] for name in others] == sorted(dates[name] for name in others)
