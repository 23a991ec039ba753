"""The pages of bisects, as a browser gets them."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.actions import bisect
from service.actions.bisect_views import BisectView
from service.actions.context import Context
from service.domain.bisect import Answer
from service.domain.states import BisectState
from tests import bisected
from tests.service.web.site import Site

IDENTIFIER = "bis_0000000000000001"


class Shelf:
    """What the actions answer about bisects."""

    def __init__(self) -> None:
        self.view = bisected.view()

    def get(self, _ctx: Context, _bisect_id: str) -> BisectView:
        return self.view

    def newest(self, _ctx: Context, limit: int = 50, before: str | None = None) -> list[BisectView]:
        return [self.view][:limit]


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Shelf:
    shelf = Shelf()
    monkeypatch.setattr(bisect, "get_bisect", shelf.get)
    monkeypatch.setattr(bisect, "list_bisects", shelf.newest)
    return shelf


@pytest.fixture
def site(tmp_path: Path, shelf: Shelf) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


def test_the_page_begins_with_the_finding_and_shows_how_it_was_found(site: Site) -> None:
    page = site.page(f"/bisects/{IDENTIFIER}")
    assert bisected.SENTENCE.replace(" %", "\u00a0%").split() == _heading(site)
    for expected in (
        "confirmed",
        bisected.ACCURACY,
        "time compressed 4×",
        "Along the lineup",
        "last good",
        "first bad",
    ):
        assert expected in page.text
    for step in bisected.view().steps:
        assert step.reason in page.text


def _heading(site: Site) -> list[str]:
    found = re.search(r'<h1 class="sentence">(.*?)</h1>', site.get(f"/bisects/{IDENTIFIER}").text)
    assert found
    return found.group(1).split()


def test_every_launch_and_the_report_are_linked(site: Site) -> None:
    page = site.page(f"/bisects/{IDENTIFIER}")
    assert f"/api/v1/bisects/{IDENTIFIER}/report" in page.links
    for one in bisected.launches():
        assert f"/launches/{one.id}" in page.links


def test_a_build_that_could_not_be_measured_is_named_with_why_and_what_it_said_is_escaped(site: Site) -> None:
    html = site.get(f"/bisects/{IDENTIFIER}").text
    assert "HIP error <b>" not in html
    assert "HIP error &lt;b&gt;" in html
    assert "could not be measured" in html


def test_the_command_to_repeat_it_is_whole(site: Site) -> None:
    page = site.page(f"/bisects/{IDENTIFIER}")
    assert "backslide bisect start v0.18.0 v0.24.0 --recipe kimi-decode --workload long-prefix" in page.text


@pytest.mark.parametrize("answer", [Answer.RANGE, Answer.NOT_REPRODUCED, Answer.INCONCLUSIVE])
def test_every_answer_has_its_page_and_names_no_culprit_where_there_is_none(
    site: Site, shelf: Shelf, answer: Answer
) -> None:
    shelf.view = bisected.view(answer)
    page = site.page(f"/bisects/{IDENTIFIER}")
    assert answer.value.replace("_", " ") in page.text
    assert ("first bad" in page.text) is (answer is Answer.RANGE)


def test_a_page_of_one_that_runs_loads_itself_again_and_says_what_is_left(site: Site, shelf: Shelf) -> None:
    shelf.view = bisected.view(None)
    html = site.get(f"/bisects/{IDENTIFIER}").text
    assert '<meta http-equiv="refresh"' in html
    assert "about 9 launches (6 to 14)" in html
    assert "backslide bisect pause" in html
    assert '<meta http-equiv="refresh"' not in site.get(f"/bisects/{IDENTIFIER}?refresh=off").text


def test_one_that_has_just_been_asked_for_has_a_page_too(site: Site, shelf: Shelf) -> None:
    unmeasured = [one.model_copy(update={"points": [], "launches": 0, "value": None}) for one in shelf.view.lineup]
    shelf.view = bisected.view(
        None, state=BisectState.CREATED, lineup=unmeasured, steps=[], picture=None, forecast=None, sentence=""
    )
    page = site.page(f"/bisects/{IDENTIFIER}")
    assert "Nothing is known yet about the step between v0.18.0 and v0.24.0." in page.text


def test_the_list_and_the_first_page_name_it_with_what_it_found(site: Site) -> None:
    for path in ("/bisects", "/"):
        page = site.page(path)
        assert f"/bisects/{IDENTIFIER}" in page.links
        assert "confirmed" in page.text


def test_the_twins_hold_the_same(site: Site) -> None:
    twin = site.twin(f"/bisects/{IDENTIFIER}.json")
    assert BisectView.model_validate(twin) == bisected.view()
    assert [one["id"] for one in site.twin("/bisects.json")] == [IDENTIFIER]
    assert [one["id"] for one in site.twin("/index.json")["bisects"]] == [IDENTIFIER]
