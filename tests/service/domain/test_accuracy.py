"""Accuracy compared question by question: the test, the interval, the gate."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import binomtest

from service.domain.accuracy import Gate, compare_answers, mcnemar, paired_interval, score

Z = 1.959963984540054
counts = st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(1, 400))


def marks(lost: int, won: int, both: int, neither: int) -> tuple[str, str]:
    """Marks of base and head."""
    return (
        "1" * lost + "0" * won + "1" * both + "0" * neither,
        "0" * lost + "1" * won + "1" * both + "0" * neither,
    )


def test_a_score_has_the_standard_error_that_lm_eval_prints() -> None:
    found = score("1" * 1214 + "0" * 105)
    assert (found.n, found.right, round(found.accuracy, 4)) == (1319, 1214, 0.9204)
    assert found.stderr == pytest.approx(0.0075, abs=5e-5)
    assert score("1").stderr is None
    with pytest.raises(ValueError, match="one 0 or 1"):
        score("")


@given(st.integers(0, 80), st.integers(0, 80))
def test_mcnemar_is_the_exact_binomial_test(lost: int, won: int) -> None:
    expected = binomtest(lost, lost + won, 0.5).pvalue if lost + won else 1.0
    assert mcnemar(lost, won) == pytest.approx(min(1.0, expected), rel=1e-9)


@pytest.mark.parametrize(("lost", "won", "n"), [(12, 9, 1319), (3, 4, 100), (13, 1, 100), (1, 9, 50), (0, 5, 40)])
def test_the_ends_of_the_interval_are_where_the_score_test_is_just_rejected(lost: int, won: int, n: int) -> None:
    """The constrained likelihood is maximised by brute force here, in place of Tango's closed form."""

    def statistic(difference: float) -> float:
        def loss(both: float) -> float:
            up, down = both + max(difference, 0), both + max(-difference, 0)
            return -sum(
                k * math.log(max(p, 1e-300)) for k, p in ((won, up), (lost, down), (n - won - lost, 1 - up - down))
            )

        found = minimize_scalar(loss, bounds=(0, (1 - abs(difference)) / 2), method="bounded", options={"xatol": 1e-12})
        spread = 2 * found.x + abs(difference) - difference**2
        return float((won - lost - n * difference) / math.sqrt(n * spread))

    low, high = paired_interval(lost, won, n)
    assert statistic(low) == pytest.approx(Z, abs=2e-3)
    assert statistic(high) == pytest.approx(-Z, abs=2e-3)


def test_without_any_difference_the_interval_is_as_wide_as_the_number_of_questions_allows() -> None:
    low, high = paired_interval(0, 0, 100)
    assert [low, high] == pytest.approx([-(Z**2) / (100 + Z**2), Z**2 / (100 + Z**2)])


@given(counts)
def test_swapping_the_builds_mirrors_everything(found: tuple[int, int, int]) -> None:
    lost, won, rest = found
    n = lost + won + rest
    low, high = paired_interval(lost, won, n)
    again = paired_interval(won, lost, n)
    assert [low, high] == pytest.approx([-again[1], -again[0]], abs=1e-9)
    assert -1 <= low <= (won - lost) / n <= high <= 1


def test_the_interval_covers_the_truth_in_95_of_100_draws() -> None:
    chance = np.random.default_rng(7)
    n, lost, won = 400, 0.03, 0.02
    covered = 0
    for _ in range(400):
        drawn = chance.multinomial(n, [lost, won, 1 - lost - won])
        low, high = paired_interval(int(drawn[0]), int(drawn[1]), n)
        covered += low <= won - lost <= high
    assert covered / 400 >= 0.92


def test_the_gate() -> None:
    assert compare_answers(*marks(10, 12, 1190, 107)).gate is Gate.UNCHANGED
    assert compare_answers(*marks(160, 5, 1050, 104)).gate is Gate.BROKEN
    assert compare_answers(*marks(5, 160, 1050, 104)).gate is Gate.UNCHANGED
    few = compare_answers(*marks(1, 1, 90, 8))
    assert few.gate is Gate.UNKNOWN
    assert few.questions_needed is not None
    assert 100 < few.questions_needed < 1000


def test_a_forecast_holds_if_answers_go_on_to_differ_as_often() -> None:
    found = compare_answers(*marks(1, 1, 90, 8))
    assert found.questions_needed is not None
    times = math.ceil((100 + found.questions_needed) / 100) + 1
    assert compare_answers(*marks(times, times, 90 * times, 8 * times)).gate is Gate.UNCHANGED


def test_a_difference_of_just_the_margin_is_never_decided_and_the_forecast_says_so() -> None:
    found = compare_answers(*marks(30, 10, 900, 60))
    assert (found.gate, found.forecast_capped, found.difference) == (Gate.UNKNOWN, True, -0.02)


def test_more_questions_of_the_same_kind_narrow_the_interval() -> None:
    widths = [compare_answers(*marks(2 * k, 3 * k, 90 * k, 5 * k)) for k in (1, 2, 5, 10)]
    assert all(a.high - a.low > b.high - b.low for a, b in pairwise(widths))


def test_different_questions_can_not_be_paired() -> None:
    with pytest.raises(ValueError, match="can't be paired"):
        compare_answers("101", "10")
