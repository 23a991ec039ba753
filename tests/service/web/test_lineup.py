"""The charts of a bisect: well-formed, complete as text, and true in where they put things."""

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.web.lineup import Mark, Place, posterior, small_posterior, values_along
from service.web.svg import WIDTH

SVG = "{http://www.w3.org/2000/svg}"
ATTACK = '"><script>alert(1)</script>'


def parse(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(str(svg))


def place(name: str, *values: float, broken: str = "") -> Place:
    marks = tuple(Mark(value, f"{name} {value}", f"/launches/{name}", fresh=value > 7.35) for value in values)
    mean = sum(values) / len(values) if values else None
    return Place(name, marks, mean, broken=broken)


def described(root: ElementTree.Element) -> str:
    named = {element.get("id"): element.text or "" for element in root.iter() if element.get("id")}
    return ". ".join(named[one] for one in (root.get("aria-labelledby") or "").split())


PLACES = [place("v1", 5.0, 5.1), place("v2", 5.05), place("v3", 7.3, 7.4), place("v4", broken=ATTACK), place("v5")]


def test_every_launch_is_a_dot_in_its_version_s_column_and_above_what_is_smaller() -> None:
    root = parse(values_along(PLACES, (1, 2), "ms", "A title", "values"))
    links = root.findall(f".//{SVG}a")
    dots = {(link.get("href"), link[0].text): link.find(f"{SVG}circle") for link in links}
    assert len(dots) == 5
    at = {key: (float(dot.get("cx") or 0), float(dot.get("cy") or 0)) for key, dot in dots.items() if dot is not None}
    slow, fast = at["/launches/v3", "v3 7.4"], at["/launches/v1", "v1 5.0"]
    assert slow[1] < fast[1]
    assert slow[0] > at["/launches/v2", "v2 5.05"][0] > fast[0]


def test_the_step_is_shaded_between_its_two_versions_and_its_bad_side_told_apart() -> None:
    root = parse(values_along(PLACES, (1, 2), "ms", "A title", "values"))
    (shade,) = [one for one in root.iter(f"{SVG}rect") if one.get("class") == "step"]
    left, right = float(shade.get("x") or 0), float(shade.get("x") or 0) + float(shade.get("width") or 0)
    circles = [one for one in root.iter(f"{SVG}circle") if (one.get("class") or "").startswith("dot head")]
    assert len(circles) == 2
    assert all(float(one.get("cx") or 0) >= right - 10 for one in circles)
    assert left < right
    assert [one.get("class") for one in circles] == ["dot head", "dot head fresh"]
    assert "first bad: v3" in [one.text for one in root.iter(f"{SVG}text")]


def test_the_description_says_what_the_picture_shows_broken_and_unmeasured_versions_too() -> None:
    text = described(parse(values_along(PLACES, (1, 2), "ms", "A title", "values")))
    assert "v1: mean 5.050 (5.000, 5.100)" in text
    assert f"v4: {ATTACK}" in text
    assert "v5: not measured" in text
    assert text.endswith("The step: v2 to v3.")


def test_the_posterior_stands_between_the_names_and_its_heights_are_the_probabilities() -> None:
    root = parse(posterior(["v1", "v2", "v3", "v4"], [0.2, 0.6, 0.1], 0.1, "A title", "bars"))
    bars = [one for one in root.iter(f"{SVG}rect")]
    heights = [float(one.get("height") or 0) for one in bars]
    assert heights == pytest.approx([0.1 * 90, 0.2 * 90, 0.6 * 90, 0.1 * 90], abs=0.11)
    assert [one.get("class") for one in bars] == ["bar", "bar", "bar leading", "bar"]
    names = {one.text: float(one.get("x") or 0) for one in root.iter(f"{SVG}text") if one.text and one.text[0] == "v"}
    middle = float(bars[2].get("x") or 0) + float(bars[2].get("width") or 0) / 2
    assert names["v2"] < middle < names["v3"]
    assert described(root).endswith("v1 to v2 0.20; v2 to v3 0.60; v3 to v4 0.10.")


def test_no_change_leads_when_it_is_likelier_than_any_step() -> None:
    for root in (parse(posterior(["a", "b"], [0.3], 0.7, "t", "n")), parse(small_posterior([0.3], 0.7))):
        assert [one.get("class") for one in root.iter(f"{SVG}rect")] == ["bar leading", "bar"]


@given(st.integers(2, 120), st.data())
def test_any_lineup_stays_inside_its_frame_and_names_both_ends(count: int, data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.floats(0, 1), min_size=count, max_size=count))
    total = sum(weights) or 1.0
    shares = [one / total for one in weights]
    names = [f"v0.{index}.0" for index in range(count)]
    root = parse(posterior(names, shares[1:], shares[0], "A title", "bars"))
    for bar in root.iter(f"{SVG}rect"):
        left = float(bar.get("x") or 0)
        assert left >= 0
        assert left + float(bar.get("width") or 0) <= WIDTH
        assert float(bar.get("y") or 0) >= 0
    shown = [one.text for one in root.iter(f"{SVG}text")]
    assert names[0] in shown
    assert names[-1] in shown
