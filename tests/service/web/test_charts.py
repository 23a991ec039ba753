"""Charts are well-formed, hold their data as text, and escape what they are given."""

import math
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.web.charts import Band, Dot, Forest, sequence, strip
from service.web.svg import WIDTH

SVG = "{http://www.w3.org/2000/svg}"
ATTACK = '"><script>alert(1)</script>'


def dot(value: float, side: str = "base", **more: object) -> Dot:
    fields = {"lane": side, "label": f"{side} {value}", "href": f"/launches/{side}", **more}
    return Dot(value=value, side=side, **fields)  # type: ignore[arg-type]


def parse(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(str(svg))


def test_every_launch_is_a_mark_with_a_link_and_a_label() -> None:
    dots = [dot(5.0), dot(5.1), dot(7.3, "head"), dot(9.9, "head", used=False)]
    root = parse(strip(dots, [Band("base", "base", 5.05, 5.0, 5.1)], "TPOT p50, ms", "A title", "strip"))
    links = root.findall(f".//{SVG}a")
    assert [link.get("href") for link in links] == ["/launches/base"] * 2 + ["/launches/head"] * 2
    assert len(root.findall(f".//{SVG}circle")) == 3
    assert len([path for path in root.findall(f".//{SVG}path") if path.get("class") == "unused"]) == 1


def test_a_chart_is_an_image_with_a_title_and_its_data_as_description() -> None:
    root = parse(strip([dot(5.0), dot(7.3, "head")], [Band("head", "head", 7.3, None, None)], "ms", "A title", "strip"))
    assert root.get("role") == "img"
    named = {element.get("id"): element.text for element in root.iter() if element.get("id")}
    assert [named[name] for name in (root.get("aria-labelledby") or "").split()] == [
        "A title",
        "ms. head: mean 7.300. base: 5.000. head: 7.300.",
    ]
    assert all(link.get("tabindex") == "-1" for link in root.iter(f"{SVG}a"))


def test_what_a_chart_is_given_is_escaped_everywhere() -> None:
    hostile = dot(5.0, lane=ATTACK, label=ATTACK, href=ATTACK, group=ATTACK)
    for svg in (
        strip([hostile], [Band(ATTACK, ATTACK, 5.0, 4.0, 6.0)], ATTACK, ATTACK, ATTACK),
        sequence([hostile], ATTACK, ATTACK, ATTACK),
    ):
        assert "<script" not in svg
        assert parse(svg).tag == f"{SVG}svg"


@given(st.lists(st.floats(1e-6, 1e9), min_size=1, max_size=30))
def test_marks_lie_inside_the_drawing_and_in_the_order_of_their_values(values: list[float]) -> None:
    root = parse(strip([dot(value) for value in values], [], "ms", "t", "n"))
    across = [float(mark.get("cx") or "nan") for mark in root.iter(f"{SVG}circle")]
    assert len(across) == len(values)
    assert across == sorted(across)  # drawn from the smallest to the largest
    assert all(0 <= x <= WIDTH for x in across)


def test_launches_of_one_block_are_joined_and_those_that_are_not_used_are_left_out() -> None:
    dots = [dot(5.0, group="a"), dot(7.0, "head", lane="base", group="a"), dot(9.0, group="a", used=False)]
    root = parse(sequence([*dots, dot(5.0, group="b")], "ms", "t", "n"))
    points = [(line.get("points") or "").split() for line in root.iter(f"{SVG}polyline")]
    assert [len(line) for line in points] == [2, 1]


def test_the_order_of_time_runs_from_left_to_right_across_slots() -> None:
    root = parse(sequence([dot(5.0, lane="0"), dot(5.0, lane="1"), dot(5.0, lane="0")], "ms", "t", "n"))
    across = [float(mark.get("cx") or "nan") for mark in root.iter(f"{SVG}circle")]  # slot 0 first, then slot 1
    assert across[0] < across[2] < across[1]


def test_intervals_of_ratios_share_one_axis_that_is_symmetrical_about_one() -> None:
    forest = Forest.over([1.5, 1.4, 1.6, None])
    assert forest.reach == pytest.approx(math.exp(math.log(1.6) * 1.08))
    up = parse(forest.draw(1.5, 1.4, 1.6, 0.02, "worse"))
    down = parse(forest.draw(1 / 1.5, 1 / 1.6, 1 / 1.4, 0.02, "better"))
    right, left = (float(next(chart.iter(f"{SVG}circle")).get("cx") or "nan") for chart in (up, down))
    assert right - 90 == pytest.approx(90 - left, abs=0.11)


def test_a_ratio_without_an_interval_is_a_point_and_one_that_is_unknown_is_nothing() -> None:
    forest = Forest.over([1.5])
    assert "<circle" in forest.draw(1.5, None, None, 0.02, "unknown")
    assert "<circle" not in forest.draw(None, None, None, 0.02, "unknown")
