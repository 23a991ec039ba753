"""Versions in upstream's order."""

from hypothesis import given
from hypothesis import strategies as st

from service.domain import versions

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
