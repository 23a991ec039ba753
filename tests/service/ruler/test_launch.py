"""A launch's value is the middle of its usable repetitions."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.ruler.launch import launch_value, launch_values
from service.ruler.metrics import Metrics
from service.ruler.validity import Judgement, Validity


def judged(validity: Validity) -> Judgement:
    return Judgement(validity=validity)


def test_three_repetitions_give_the_middle_one_and_their_spread() -> None:
    got = launch_value([22.0, 20.0, 21.0])
    assert got is not None
    assert got.value == pytest.approx(21)
    assert (got.low, got.high, got.repetitions) == (20, 22, 3)
    assert got.spread == pytest.approx(0.1)


def test_four_give_the_geometric_mean_of_the_middle_two() -> None:
    got = launch_value([1.0, 2.0, 8.0, 100.0])
    assert got is not None
    assert got.value == pytest.approx(4)


@pytest.mark.parametrize("values", [[], [20.0, 21.0], [20.0, 21.0, None], [20.0, 21.0, 0.0]])
def test_too_few_or_senseless_values_give_none(values: list[float | None]) -> None:
    assert launch_value(values) is None


def test_invalid_repetitions_are_never_used_and_suspect_ones_are() -> None:
    metrics = [Metrics(tpot_p50_ms=value) for value in (20.0, 21.0, 22.0, 99.0)]
    verdicts = [Validity.VALID, Validity.SUSPECT, Validity.VALID, Validity.INVALID]
    got = launch_values([(m, judged(v)) for m, v in zip(metrics, verdicts, strict=True)])
    assert list(got) == ["tpot_p50_ms"]
    assert got["tpot_p50_ms"].value == pytest.approx(21)
    assert launch_values([(m, judged(Validity.INVALID)) for m in metrics]) == {}


@given(st.lists(st.floats(1e-3, 1e6), min_size=3, max_size=9), st.floats(0.01, 100))
def test_the_value_lies_between_its_ends_and_scales_with_the_unit(values: list[float], factor: float) -> None:
    got, scaled = launch_value(values), launch_value([v * factor for v in values])
    assert got is not None
    assert scaled is not None
    assert got.low <= got.value <= got.high
    assert math.isclose(scaled.value, got.value * factor, rel_tol=1e-9)
