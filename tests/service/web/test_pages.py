"""Every page, as a browser gets it: what it says, its twin, escaping, links, empty states and errors."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.actions.views import ReasonView, RequestView
from service.contract.builds import BuildKind
from service.store.tables import RequestRow
from tests import measured
from tests.service.web.site import Page, Site

TPOT = "tpot_p50_ms"
ATTACK = "<script>alert('x')</script>"


def four(base: float, head: float) -> list[dict[str, float] | None]:
    return [
        {TPOT: value, "ttft_p50_ms": 200.0, "output_tok_s": 4000 / value}
        for value in (base, head, head * 1.004, base * 1.004)
    ]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


@pytest.fixture
def story(site: Site) -> RequestView:
    """v0.19.1 against v0.18.0, one launch of it invalid, with a hostile reason."""
    base, head = site.lab.build("v0.18.0"), site.lab.build("v0.19.1")
    return site.lab.request(
        base,
        head,
        [four(5.0, 7.3), four(5.02, 7.35)],
        invalid=[(1, 2)],
        reason=ReasonView(code="short_output", message=ATTACK),
    )


def test_the_comparison_begins_with_the_verdict_and_shows_both_sides_of_every_metric(
    site: Site, story: RequestView
) -> None:
    page = site.page(f"/compare/v0.18.0...v0.19.1?request={story.id}")
    assert "v0.19.1 is worse than v0.18.0: TPOT p50 is 1.46" in page.text
    for expected in ("TPOT p50", "TTFT p50", "output tok/s, steady", "lower is better", "higher is better", "at 4×"):
        assert expected in page.text
    assert "simulated" in page.text
    assert "time compressed 4×" in page.text


def test_the_comparison_shows_the_evidence_of_every_launch(site: Site, story: RequestView) -> None:
    html = site.get(f"/compare/v0.18.0...v0.19.1?request={story.id}").text
    launches = site.twin(f"/compare/v0.18.0...v0.19.1.json?request={story.id}")["launches"]
    assert len(launches) == 8
    for one in launches:
        launch = one["launch"]
        identity = launch["report"]["identity"]
        assert f'href="/launches/{launch["id"]}"' in html
        assert f"<code>{identity['pid']}</code>" in html
        assert identity["served_model_name"] in html
        assert launch["report"]["prompts"][:12] in html
        for artifact in launch["artifacts"]:
            assert f'href="/api/v1/launches/{launch["id"]}/artifacts/{artifact["name"]}"' in html


def test_an_invalid_launch_is_shown_crossed_out_with_its_reason(site: Site, story: RequestView) -> None:
    html = site.get(f"/compare/v0.18.0...v0.19.1?request={story.id}").text
    assert html.count('<tbody class="unused">') == 1
    assert html.count("short_output") == 3
    page = Page(html)
    assert "1 launch of v0.19.1 is not used" in page.text
    assert "4 + 3" in page.text


def test_what_people_and_servers_wrote_is_escaped_on_every_page(site: Site, story: RequestView) -> None:
    with site.lab.ctx.store.write() as session:
        row = session.get_one(RequestRow, story.id)
        row.submitter, row.reason = ATTACK, ATTACK
        session.add(row)
    launch_id = site.twin(f"/compare/v0.18.0...v0.19.1.json?request={story.id}")["launches"][5]["launch"]["id"]
    hostile = f"/compare/{ATTACK.replace('/', '%2F')}...v0.19.1"
    for path in ("/", f"/requests/{story.id}", f"/launches?build={ATTACK}", f"/launches?cell={ATTACK}", hostile):
        answer = site.get(path)
        assert "<script" not in answer.text, path
        assert "&lt;script&gt;" in answer.text, path
        Page(answer.text)
    assert "<script" not in site.get(f"/launches/{launch_id}").text


def test_every_link_leads_somewhere(site: Site, story: RequestView) -> None:
    seen: set[str] = set()
    waiting = ["/"]
    while waiting and len(seen) < 60:
        path = waiting.pop()
        if path in seen or "/artifacts/" in path or path.startswith("#"):
            continue
        seen.add(path)
        answer = site.get(path)
        assert answer.status_code == 200, path
        if answer.headers["content-type"].startswith("text/html"):
            page = Page(answer.text)
            base = path.partition("?")[0]
            found = [base + link if link.startswith("?") else link for link in page.links + page.references]
            assert not [link for link in found if not link.startswith(("/", "#"))]
            waiting += found
    assert f"/requests/{story.id}" in seen
    assert any(path.startswith("/compare/") and "metric=" in path for path in seen)
    assert any(path.startswith("/static/pages.css") for path in seen)
    assert len([path for path in seen if path.startswith("/launches/lau_")]) == 16  # eight pages and their twins


def test_every_page_has_a_twin_that_says_the_same(site: Site, story: RequestView) -> None:
    sentence = site.twin(f"/requests/{story.id}.json")["comparison"]["sentence"]
    assert site.twin("/index.json")["sentences"] == {story.id: sentence}
    assert site.twin("/compare/v0.18.0...v0.19.1.json")["sentence"] == sentence
    assert sentence in site.page("/").text
    assert sentence in site.page(f"/requests/{story.id}").text
    launches = site.twin("/launches.json")
    assert site.twin(f"/launches/{launches[0]['id']}.json") == launches[0]


def test_another_metric_is_asked_for_in_the_address(site: Site, story: RequestView) -> None:
    page = site.page("/compare/v0.18.0...v0.19.1?metric=output_tok_s")
    assert "output tok/s, steady is 0.68" in page.text
    answer = site.page("/compare/v0.18.0...v0.19.1?metric=nonsense", status=422)
    assert "unknown_metric" in answer.text
    assert "tpot_p50_ms" in answer.text


def test_a_launch_has_its_numbers_files_command_and_the_way_to_recompute_them(site: Site, story: RequestView) -> None:
    launch = site.twin("/launches.json")[0]
    page = site.page(f"/launches/{launch['id']}")
    for expected in (
        f"backslide recompute {launch['id']}",
        "raw log of repetition 2",
        "server log",
        "prompts (token ids)",
        "VLLM_ROCM_USE_AITER=1 python -m images.simulated",
        "40,960 shared and 10,240 own tokens",
        "1,638,400",
        "node-7.example",
    ):
        assert expected in page.text


def test_real_launches_are_marked_real_with_their_hardware_and_no_factor(site: Site) -> None:
    base, head = (site.lab.build(name, BuildKind.WHEELS) for name in ("v0.18.0", "v0.24.0"))
    site.lab.request(base, head, [four(4.0, 6.0)])
    page = site.page("/compare/v0.18.0...v0.24.0")
    assert "real, cpu" in page.text
    assert "at 4×" not in page.text
    assert "simulated" not in page.text


def test_empty_pages_say_what_to_do(site: Site) -> None:
    assert "backslide compare v0.18.0 v0.19.1 --measure" in site.page("/").text
    assert "No launch yet" in site.page("/launches").text
    base, head = site.lab.build("v0.18.0"), site.lab.build("v0.19.1")
    assert "--measure" in site.page("/compare/v0.18.0...v0.19.1", status=404).text
    asked = site.lab.request(base, head, [[None] * 4])
    assert "No launch has TPOT p50 yet" in site.page(f"/compare/v0.18.0...v0.19.1?request={asked.id}").text
    assert "waiting" in site.page(f"/requests/{asked.id}").text


def test_a_page_loads_itself_again_only_while_something_runs(site: Site, story: RequestView) -> None:
    refresh = re.compile(r'<meta http-equiv="refresh" content="\d+">')
    assert not refresh.search(site.get(f"/requests/{story.id}").text)
    running = site.lab.request(site.lab.build("v0.18.0"), site.lab.build("v0.19.1"), [[{TPOT: 5.0}, None, None, None]])
    path = f"/requests/{running.id}"
    assert refresh.search(site.get(path).text)
    assert refresh.search(site.get("/").text)
    assert not refresh.search(site.get(f"{path}?refresh=off").text)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/launches/lau_0", "not_found"),
        ("/requests/req_0", "not_found"),
        ("/compare/v1...v2", "unknown_build"),
        ("/no/such/page", "not_found"),
    ],
)
def test_an_error_is_a_page_for_people_and_a_problem_for_programs(site: Site, path: str, code: str) -> None:
    assert code in site.page(path, status=404).text
    answer = site.get(f"{path}.json")
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, answer.json()["code"]) == (404, code)


def test_different_cells_are_refused_with_the_differences_on_the_page(site: Site) -> None:
    names = ("v0.18.0", "v0.19.1", "v0.22.0", "v0.23.0")
    builds = [site.lab.build(name) for name in names]
    site.lab.request(builds[0], builds[1], [four(5.0, 7.3)], where=measured.cell(output_tokens=256))
    site.lab.request(builds[2], builds[3], [four(5.0, 7.3)], where=measured.cell(output_tokens=128))
    page = site.page("/compare/v0.18.0...v0.22.0", status=409)
    assert "workload.output_tokens: 256 != 128" in page.text


def test_the_style_sheet_and_the_icon_come_from_the_package_and_nothing_else_does(site: Site) -> None:
    assert site.get("/static/pages.css").headers["content-type"].startswith("text/css")
    assert site.get("/static/icon.svg").headers["content-type"].startswith("image/svg+xml")
    for path in ("/static/../pages.py", "/static/..%2Fpages.py", "/static/none.css"):
        assert site.get(path).status_code == 404
