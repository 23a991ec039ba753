"""The comparison's promises, by property and by seeded simulation; numbers are checked against scipy and by hand."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from service.domain.compare import (
    MAX_FORECAST,
    Comparison,
    Criterion,
    Method,
    Observation,
    Side,
    Verdict,
    compare,
)

LOWER = Criterion(lower_better=True)
HIGHER = Criterion(lower_better=False)
ABBA = (Side.BASE, Side.HEAD, Side.HEAD, Side.BASE)
OTHER = {Side.BASE: Side.HEAD, Side.HEAD: Side.BASE}
FLIPPED = {
    Verdict.WORSE: Verdict.BETTER,
    Verdict.BETTER: Verdict.WORSE,
    Verdict.SAME: Verdict.SAME,
    Verdict.UNKNOWN: Verdict.UNKNOWN,
}


def launches(base: Sequence[float], head: Sequence[float]) -> list[Observation]:
    return [Observation(Side.BASE, v) for v in base] + [Observation(Side.HEAD, v) for v in head]


def simulate(
    rng: np.random.Generator, blocks: int, ratio: float, noise: float, slot_sd: float = 0.0, drift: float = 0.0
) -> list[Observation]:
    """Blocks of A B B A around 20 ms: a slot's offset, a drift per launch, and every launch's own effect."""
    found = []
    for block in range(blocks):
        slot = rng.normal(0, slot_sd)
        for position, side in enumerate(ABBA):
            log = math.log(20) + slot + drift * position + rng.normal(0, noise)
            log += math.log(ratio) if side is Side.HEAD else 0
            found.append(Observation(side, math.exp(log), block=block, slot=block % 2))
    return found


observations = st.lists(
    st.builds(
        Observation,
        side=st.sampled_from(Side),
        value=st.floats(0.1, 1000),
        block=st.none() | st.integers(0, 3),
        slot=st.none() | st.integers(0, 2),
    ),
    max_size=16,
)


def close(a: float | None, b: float | None) -> bool:
    return a == b if a is None or b is None else math.isclose(a, b, rel_tol=1e-9)


@given(observations)
def test_swapping_the_sides_inverts_the_ratio_and_flips_the_verdict(found: list[Observation]) -> None:
    there = compare(found, LOWER)
    back = compare([Observation(OTHER[o.side], o.value, o.block, o.slot) for o in found], LOWER)
    assert back.verdict is FLIPPED[there.verdict]
    assert back.launches_needed == there.launches_needed
    if there.ratio is not None:
        assert back.ratio is not None
        assert close(back.ratio, 1 / there.ratio)
    if there.low is not None:
        assert there.high is not None
        assert close(back.low, 1 / there.high)
        assert close(back.high, 1 / there.low)


@given(observations, st.floats(0.001, 1000))
def test_the_unit_of_the_metric_changes_no_ratio_and_no_verdict(found: list[Observation], factor: float) -> None:
    one = compare(found, LOWER)
    scaled = compare([Observation(o.side, o.value * factor, o.block, o.slot) for o in found], LOWER)
    if one.residual_sd is not None and one.residual_sd < 1e-9:
        return  # with no noise at all the verdict may hang on the last bit of a logarithm
    assert scaled.verdict is one.verdict
    for name in ("ratio", "low", "high", "smallest_detectable", "residual_sd"):
        a, b = getattr(one, name), getattr(scaled, name)
        assert (a is None) == (b is None)
        assert a is None or math.isclose(a, b, rel_tol=1e-6)


@given(observations)
def test_the_direction_of_the_metric_flips_only_the_verdict(found: list[Observation]) -> None:
    low, high = compare(found, LOWER), compare(found, HIGHER)
    assert high.verdict is FLIPPED[low.verdict]
    assert (high.ratio, high.low, high.high) == (low.ratio, low.low, low.high)


@given(observations)
def test_every_verdict_but_unknown_has_an_interval_that_holds_the_ratio_and_supports_it(
    found: list[Observation],
) -> None:
    result = compare(found, LOWER)
    if result.low is None or result.high is None or result.ratio is None:
        assert result.verdict is Verdict.UNKNOWN
        assert result.launches_needed == 4
        return
    assert result.low <= result.ratio <= result.high
    if result.verdict is Verdict.SAME:
        assert result.low * (1 + 1e-12) >= 1 / 1.02
        assert result.high <= 1.02 * (1 + 1e-12)
    elif result.verdict is Verdict.UNKNOWN:
        assert result.launches_needed is not None
        assert 4 <= result.launches_needed <= MAX_FORECAST
    else:
        beyond = result.low > 1 if result.verdict is Verdict.WORSE else result.high < 1
        assert beyond


@pytest.mark.parametrize(
    ("base", "head"), [([], []), ([20.0], []), ([], [20.0] * 9), ([20.0], [30.0]), ([20.0, 20.1], [30.0])]
)
def test_too_few_launches_are_unknown_without_an_interval_however_far_apart(
    base: list[float], head: list[float]
) -> None:
    result = compare(launches(base, head), LOWER)
    assert result.verdict is Verdict.UNKNOWN
    assert (result.low, result.high, result.smallest_detectable) == (None, None, None)
    assert result.launches_needed == 4


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_value_that_has_no_logarithm_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        Observation(Side.BASE, value)


def test_unpaired_launches_give_welchs_interval() -> None:
    base, head = [20.0, 20.4, 19.7, 20.1], [29.3, 30.5, 28.8]
    result = compare(launches(base, head), LOWER)
    welch = stats.ttest_ind(np.log(head), np.log(base), equal_var=False)
    interval = welch.confidence_interval(0.95)
    assert result.method is Method.UNPAIRED
    assert result.degrees == pytest.approx(welch.df)
    assert (result.low, result.high) == pytest.approx((math.exp(interval.low), math.exp(interval.high)))
    assert result.verdict is Verdict.WORSE


def test_blocks_of_one_and_one_give_the_paired_t_interval() -> None:
    base, head = [20.0, 25.0, 22.0], [29.0, 36.5, 32.3]
    found = [Observation(Side.BASE, v, block=i) for i, v in enumerate(base)]
    found += [Observation(Side.HEAD, v, block=i) for i, v in enumerate(head)]
    result = compare(found, LOWER)
    interval = stats.ttest_rel(np.log(head), np.log(base)).confidence_interval(0.95)
    assert result.method is Method.BLOCKS
    assert (result.low, result.high) == pytest.approx((math.exp(interval.low), math.exp(interval.high)))


def test_unequal_blocks_give_the_least_squares_fit_of_block_and_side() -> None:
    found = [
        Observation(Side.BASE, 20.0, "p"),
        Observation(Side.HEAD, 29.0, "p"),
        Observation(Side.HEAD, 29.6, "p"),
        Observation(Side.BASE, 23.0, "q"),
        Observation(Side.BASE, 23.2, "q"),
        Observation(Side.HEAD, 33.5, "q"),
        Observation(Side.BASE, 21.0, "r"),
        Observation(Side.BASE, 21.3, "r"),
        Observation(Side.HEAD, 30.2, "r"),
    ]
    design = np.array([[o.block == "p", o.block == "q", o.block == "r", o.side is Side.HEAD] for o in found], float)
    logs = np.log([o.value for o in found])
    coefficients, residual, _, _ = np.linalg.lstsq(design, logs)
    variance = residual[0] / 5 * np.linalg.inv(design.T @ design)[3, 3]
    half = stats.t.ppf(0.975, 5) * math.sqrt(variance)
    result = compare(found, LOWER)
    assert result.degrees == 5
    assert (result.low, result.ratio, result.high) == pytest.approx(
        tuple(math.exp(coefficients[3] + k * half) for k in (-1, 0, 1))
    )


def test_a_block_of_one_side_only_changes_nothing_and_is_named() -> None:
    whole = [Observation(side, 20 + i, block="p") for i, side in enumerate(ABBA)]
    alone = [Observation(Side.BASE, 90.0, block="q"), Observation(Side.BASE, 95.0)]
    with_them, without = compare(whole + alone, LOWER), compare(whole, LOWER)
    assert with_them.counted == (True,) * 4 + (False,) * 2
    assert (with_them.base, with_them.ratio, with_them.low) == (without.base, without.ratio, without.low)


@given(st.lists(st.lists(st.floats(1, 100), min_size=4, max_size=4), min_size=1, max_size=4))
def test_with_whole_blocks_the_ratio_is_the_quotient_of_the_means(values: list[list[float]]) -> None:
    found = [Observation(s, v, block=b) for b, four in enumerate(values) for s, v in zip(ABBA, four, strict=True)]
    result = compare(found, LOWER)
    assert result.ratio is not None
    assert result.base.value is not None
    assert result.head.value is not None
    assert result.ratio == pytest.approx(result.head.value / result.base.value)


def test_what_differs_between_slots_cancels_within_blocks() -> None:
    values = {("a", Side.BASE): 20.0, ("a", Side.HEAD): 22.0, ("b", Side.BASE): 40.0, ("b", Side.HEAD): 44.0}
    found = [
        Observation(side, values[block, side] * wobble, block=block)
        for block in ("a", "b")
        for side, wobble in zip(ABBA, (1.001, 0.999, 1.001, 0.999), strict=True)
    ]
    result = compare(found, LOWER)
    assert result.verdict is Verdict.WORSE
    assert result.low is not None
    assert result.low > 1.09


def test_a_linear_drift_within_a_block_does_not_move_the_ratio() -> None:
    found = [
        Observation(side, 20 * math.exp(0.05 * position) * (1.1 if side is Side.HEAD else 1), block=0)
        for position, side in enumerate(ABBA)
    ]
    assert compare(found, LOWER).ratio == pytest.approx(1.1)


def test_launches_of_different_blocks_are_compared_within_their_slots() -> None:
    found = [Observation(Side.BASE, v, block="old", slot="s0") for v in (20.0, 20.1)]
    found += [Observation(Side.HEAD, v, block="new", slot="s0") for v in (22.0, 22.1)]
    found += [Observation(Side.BASE, v, block="old2", slot="s1") for v in (30.0, 30.1)]
    found += [Observation(Side.HEAD, v, block="new2", slot="s1") for v in (33.0, 33.1)]
    result = compare(found, LOWER)
    assert result.method is Method.SLOTS
    assert result.verdict is Verdict.WORSE


def test_a_change_too_small_to_matter_is_the_same_even_when_it_is_certain() -> None:
    result = compare(launches([20.0, 20.001, 20.002], [20.1, 20.101, 20.102]), LOWER)
    assert result.low is not None
    assert result.low > 1
    assert result.verdict is Verdict.SAME


def test_the_margin_decides_between_same_and_worse() -> None:
    found = launches([20.0, 20.01, 20.02], [20.6, 20.61, 20.62])
    assert compare(found, LOWER).verdict is Verdict.WORSE
    assert compare(found, Criterion(lower_better=True, margin=0.05)).verdict is Verdict.SAME


def test_a_noisy_difference_is_unknown_and_the_forecast_shrinks_with_the_noise() -> None:
    noisy = compare(launches([20, 24, 18], [23, 27, 19]), LOWER)
    less = compare(launches([20, 21.5, 19.5], [23, 25, 21]), LOWER)
    assert noisy.verdict is less.verdict is Verdict.UNKNOWN
    assert noisy.launches_needed is not None
    assert less.launches_needed is not None
    assert noisy.launches_needed > less.launches_needed


def test_a_hopeless_forecast_is_capped_and_says_so() -> None:
    result = compare(launches([20, 40, 10, 20], [20.1, 10, 40, 20]), LOWER)
    assert (result.launches_needed, result.forecast_capped) == (MAX_FORECAST, True)


def test_a_certain_change_that_may_be_too_small_to_matter_is_unknown() -> None:
    result = compare(launches([20.0, 20.1, 20.05], [20.35, 20.45, 20.25]), LOWER)
    assert result.ratio is not None
    assert result.low is not None
    assert result.high is not None
    assert 1 < result.low < result.ratio < 1.02 < result.high
    assert result.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(("ratio", "noise"), [(1.05, 0.05), (1.004, 0.015)])
def test_the_forecast_is_the_first_number_of_blocks_whose_half_width_clears_the_distance(
    ratio: float, noise: float
) -> None:
    """Outside the margin the distance is to 1, inside it is to the margin's edge."""
    found = [
        Observation(side, ratio ** (side is Side.HEAD) * math.exp(noise * z), block=block)
        for block in (0, 1)
        for side, z in zip(ABBA, Z, strict=True)
    ]
    result = compare(found, LOWER)
    assert result.residual_sd is not None
    assert result.ratio is not None
    size = abs(math.log(result.ratio))
    distance = size if size > math.log(1.02) else math.log(1.02) - size
    halves = [stats.t.ppf(0.975, 5 + 3 * k) * result.residual_sd / math.sqrt(2 + k) for k in range(51)]
    expected = next((4 * k for k, half in enumerate(halves) if k > 0 and half <= distance), MAX_FORECAST)
    assert (result.verdict, result.launches_needed) == (Verdict.UNKNOWN, expected)
    assert 8 < expected < MAX_FORECAST


def test_the_forecast_is_about_right() -> None:
    """With the forecast's number of launches added, about half of the unknown comparisons are decided; far fewer with
    a quarter of it."""
    rng = np.random.default_rng(11)
    decided = {0.25: 0, 1.0: 0}
    tried = 0
    for _ in range(400):
        found = simulate(rng, 2, 1.04, 0.03)
        first = compare(found, LOWER)
        if first.launches_needed is None or first.launches_needed < 16:
            continue
        tried += 1
        for share in decided:
            more = simulate(rng, max(1, int(first.launches_needed * share) // 4), 1.04, 0.03)
            renamed = [Observation(o.side, o.value, block=("more", o.block)) for o in more]
            decided[share] += compare(found + renamed, LOWER).verdict is not Verdict.UNKNOWN
    assert tried >= 100
    assert decided[1.0] / tried > 0.4
    assert decided[0.25] < decided[1.0]


def repeat(times: int, seed: int, blocks: int, ratio: float, noise: float) -> list[Comparison]:
    rng = np.random.default_rng(seed)
    return [compare(simulate(rng, blocks, ratio, noise, slot_sd=0.05), LOWER) for _ in range(times)]


@pytest.mark.parametrize("blocks", [1, 2, 5])
@pytest.mark.parametrize("noise", [0.01, 0.05])
def test_equal_builds_raise_at_most_five_false_alarms_in_a_hundred(blocks: int, noise: float) -> None:
    results = repeat(2000, 100 + blocks, blocks, 1.0, noise)
    alarms = sum(r.verdict in (Verdict.WORSE, Verdict.BETTER) for r in results)
    assert alarms / len(results) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / len(results))
    if noise == 0.05 and blocks == 2:
        assert alarms > 0  # the simulation is noisy enough to test something


@pytest.mark.parametrize("blocks", [1, 2, 6])
@pytest.mark.parametrize("ratio", [1.0, 1.467])
def test_the_interval_covers_the_truth_in_93_to_97_of_a_hundred(blocks: int, ratio: float) -> None:
    results = repeat(2000, 7 * blocks, blocks, ratio, 0.02)
    covered = sum(r.low is not None and r.high is not None and r.low <= ratio <= r.high for r in results)
    assert 0.93 <= covered / len(results) <= 0.97


def test_welchs_interval_covers_the_truth_when_the_sides_differ_in_noise_and_number() -> None:
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(3000):
        found = launches(np.exp(rng.normal(3, 0.01, 4)).tolist(), np.exp(rng.normal(3.1, 0.04, 9)).tolist())
        result = compare(found, LOWER)
        assert result.low is not None
        assert result.high is not None
        covered += result.low <= math.exp(0.1) <= result.high
    assert 0.93 <= covered / 3000 <= 0.97


def test_more_launches_do_not_widen_the_interval_on_average() -> None:
    widths = []
    for blocks in (1, 2, 3, 5, 8, 13):
        results = repeat(300, 17, blocks, 1.1, 0.02)
        widths.append(np.mean([math.log((r.high or math.inf) / (r.low or 1)) for r in results]))
    assert widths == sorted(widths, reverse=True)


def test_a_change_of_the_smallest_detectable_size_is_seen_in_about_80_of_100() -> None:
    """The size is computed from the true noise, then tried."""
    degrees, error = 5, 0.02 / math.sqrt(2)
    known = [Observation(side, math.exp(0.02 * z), block=b) for b in (0, 1) for side, z in zip(ABBA, Z, strict=True)]
    example = compare(known, LOWER)
    assert example.degrees == degrees
    assert example.residual_sd is not None
    assert example.smallest_detectable is not None
    in_errors = math.log(example.smallest_detectable) / (example.residual_sd / math.sqrt(2))
    rng = np.random.default_rng(3)
    ratio = math.exp(in_errors * error)
    seen = sum((compare(simulate(rng, 2, ratio, 0.02), LOWER).low or 0) > 1 for _ in range(3000))
    assert 0.77 <= seen / 3000 <= 0.83


Z = (1.0, -1.0, 1.0, -1.0)


def test_the_story_is_told_with_eight_launches() -> None:
    """v0.19.1 against v0.18.0: 29.2 against 19.9 ms a token with one percent of noise."""
    result = compare(simulate(np.random.default_rng(1), 2, 29.2 / 19.9, 0.01, slot_sd=0.02), LOWER)
    assert result.verdict is Verdict.WORSE
    assert result.low is not None
    assert result.high is not None
    assert result.low < 29.2 / 19.9 < result.high
    assert result.high - result.low < 0.10
