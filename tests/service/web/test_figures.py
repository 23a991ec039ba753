"""How numbers are written."""

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.web import figures
from tests.measured import build, launch

THIN = figures.THIN


@pytest.mark.parametrize(
    ("value", "written"),
    [(19.944, "19.94"), (1234.4, "1,234"), (0.04609, "0.04609"), (0.0, "0"), (None, "–"), (float("nan"), "–")],
)
def test_values_have_four_significant_digits(value: float | None, written: str) -> None:
    assert figures.number(value) == written


def test_ratios_and_changes_have_a_sign_that_can_be_seen() -> None:
    assert figures.ratio(1.4673) == "1.467×"
    assert figures.ratio_interval(1.4, 1.5) == f"1.400{THIN}–{THIN}1.500"
    assert [figures.change(v) for v in (1.467, 0.9, 1.0, None)] == [
        f"+46.7{THIN}%",
        f"−10.0{THIN}%",
        f"±0.0{THIN}%",
        "–",
    ]


def test_sizes_durations_and_times_are_as_people_say_them() -> None:
    assert [figures.size(n) for n in (512, 70_000, 3 * 2**30)] == [f"512{THIN}B", f"68.4{THIN}KiB", f"3.0{THIN}GiB"]
    assert [figures.duration(s) for s in (0.85, 12.34, 245, 7380)] == [
        f"850{THIN}ms",
        f"12.3{THIN}s",
        f"4{THIN}min 05{THIN}s",
        f"2{THIN}h 03{THIN}min",
    ]
    assert figures.clock(datetime(2026, 12, 1, 9, 5, 7, tzinfo=UTC)) == "2026-12-01 09:05:07 UTC"
    assert figures.count(1638400) == "1,638,400"


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(3, 9))
def test_ticks_are_round_evenly_spaced_and_inside(low: float, width: float, about: int) -> None:
    found = figures.ticks(low, low + width, about)
    slack = width * 1e-6 + abs(low) * 1e-9
    assert 1 <= len(found) <= about + 1
    assert all(low - slack <= tick <= low + width + slack for tick in found)
    steps = {round((b - a) / (found[1] - found[0]), 3) for a, b in pairwise(found)}
    assert steps <= {1.0}


def test_the_command_is_written_as_a_shell_takes_it() -> None:
    identity = launch(build("v0.18.0"), 1, {}).report.identity
    quoted = identity.model_copy(update={"command": ["vllm", "serve", "a model; rm -rf x"], "env": {"A": "b c"}})
    assert figures.shell(quoted) == "A='b c' vllm serve 'a model; rm -rf x'"
