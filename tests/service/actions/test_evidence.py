"""From launches in memory to rows, notes and sentences."""

import pytest

from service.actions import evidence
from service.actions.comparison_views import MetricRow
from service.actions.sentences import marks, percent
from service.actions.views import LaunchView
from service.contract.builds import BuildKind
from service.domain.compare import Method, Verdict
from tests.measured import blocks, build, cell, launch

BASE, HEAD = build("v0.18.0"), build("v0.19.1")
NAMES = ("v0.18.0", "v0.19.1")
TPOT = "tpot_p50_ms"
MARK = "simulated, time compressed 4×"


def tpot(values: list[list[float]]) -> list[LaunchView]:
    return blocks(BASE, HEAD, [[{TPOT: value} for value in four] for four in values])


STORY = [[4.97, 7.30, 7.33, 4.99], [5.02, 7.36, 7.40, 5.01]]


def row_of(launches: list[LaunchView], metric: str = TPOT) -> MetricRow:
    return evidence.rows(evidence.compared(launches, BASE, HEAD, metric), NAMES, metric, 0.95, MARK)[0]


def test_the_story_in_one_sentence() -> None:
    assert row_of(tpot(STORY)).sentence == (
        "v0.19.1 is worse than v0.18.0: TPOT p50 is 1.470 times as high "
        "(95 % interval 1.463 to 1.477, 8 launches, simulated, time compressed 4×)."
    )


def test_a_faster_head_is_better_and_a_lower_throughput_is_worse() -> None:
    faster = row_of(tpot([[5.0, 4.40, 4.42, 5.01], [5.02, 4.41, 4.43, 5.0]]))
    assert faster.verdict is Verdict.BETTER
    assert faster.sentence.startswith("v0.19.1 is better than v0.18.0: TPOT p50 is 0.88")
    rate = blocks(BASE, HEAD, [[{"output_tok_s": v} for v in (800.0, 700.0, 702.0, 801.0)] for _ in range(2)])
    slower = row_of(rate, "output_tok_s")
    assert slower.verdict is Verdict.WORSE
    assert slower.ratio is not None
    assert slower.ratio < 1


def test_equal_builds_are_the_same_within_the_margin() -> None:
    row = row_of(tpot([[5.00, 5.01, 5.0, 5.01], [5.01, 5.0, 5.0, 5.01]]))
    assert row.verdict is Verdict.SAME
    assert row.sentence.startswith("v0.19.1 is the same as v0.18.0 within 2 %: TPOT p50 is 0.999")


def test_noise_is_unknown_with_the_launches_it_needs() -> None:
    row = row_of(tpot([[5.0, 5.6, 5.2, 5.3], [5.1, 4.9, 5.8, 5.0]]))
    assert row.verdict is Verdict.UNKNOWN
    assert row.launches_needed is not None
    assert f"about {row.launches_needed} launches more are needed." in row.sentence
    assert MARK in row.sentence


def test_a_certain_change_that_may_or_may_not_matter_says_just_that() -> None:
    row = row_of(tpot([[5.00, 5.09, 5.08, 5.02], [5.01, 5.11, 5.07, 5.0]]))
    assert row.verdict is Verdict.UNKNOWN
    assert row.sentence.startswith(
        "It is unknown whether the change from v0.18.0 to v0.19.1 is more than 2 %: TPOT p50"
    )


def test_two_launches_give_a_ratio_but_no_interval() -> None:
    row = row_of(tpot(STORY)[:2:1])
    assert (row.verdict, row.low, row.high) == (Verdict.UNKNOWN, None, None)
    assert "too few launches for an interval" in row.sentence


def test_one_side_without_a_launch_is_named() -> None:
    row = row_of([launch(BASE, 1, {TPOT: 5.0})])
    assert row.sentence.startswith("Nothing is known yet about v0.19.1 next to v0.18.0: v0.19.1 has no usable launch")
    assert row.ratio is None


def test_an_invalid_launch_is_shown_and_never_used() -> None:
    bad = launch(HEAD, 30, {TPOT: 50.0}, validity="invalid", block=1, position=3, slot=1)
    found = evidence.compared([*tpot(STORY), bad], BASE, HEAD, TPOT)
    unused = [one for one in found if not one.used]
    assert [(one.launch.id, one.unused_because) for one in unused] == [(bad.id, "invalid")]
    row = evidence.rows(found, NAMES, TPOT, 0.95, MARK)[0]
    assert row.model_dump(exclude={"sentence"}) == row_of(tpot(STORY)).model_dump(exclude={"sentence"})
    assert evidence.notes(found, NAMES, row) == ["1 launch of v0.19.1 is not used: see the reasons below."]


def test_a_suspect_launch_is_used_and_noted() -> None:
    launches = tpot(STORY)
    launches[0] = launches[0].model_copy(update={"validity": "suspect"})
    found = evidence.compared(launches, BASE, HEAD, TPOT)
    assert all(one.used for one in found)
    row = evidence.rows(found, NAMES, TPOT, 0.95, MARK)[0]
    assert evidence.notes(found, NAMES, row) == [
        "1 launch of v0.18.0 is suspect: used; the reasons are with each launch."
    ]


@pytest.mark.parametrize(("metrics", "why"), [({"itl_p50_ms": 5.0}, "has no TPOT p50"), ({TPOT: 0.0}, "not above")])
def test_a_launch_without_a_usable_value_says_so(metrics: dict[str, float], why: str) -> None:
    found = evidence.compared([*tpot(STORY), launch(BASE, 40, metrics)], BASE, HEAD, TPOT)
    assert [why in one.unused_because for one in found if not one.used] == [True]


def test_a_launch_alone_in_its_block_is_not_used_and_says_so() -> None:
    alone = launch(BASE, 40, {TPOT: 9.0}, request="req_00000000000000ff")
    found = evidence.compared([*tpot(STORY), alone], BASE, HEAD, TPOT)
    assert [one.unused_because for one in found if not one.used] == ["no launch of the other build beside it"]


def test_launches_of_different_requests_are_compared_within_their_slots_with_a_warning() -> None:
    apart = [launch(BASE, i, {TPOT: 5.0 + i / 100}, request="req_000000000000000a") for i in range(3)]
    apart += [launch(HEAD, i, {TPOT: 7.0 + i / 100}, request="req_000000000000000b") for i in range(3)]
    found = evidence.compared(apart, BASE, HEAD, TPOT)
    row = evidence.rows(found, NAMES, TPOT, 0.95, MARK)[0]
    assert row.method is Method.SLOTS
    assert "not interleaved" in evidence.notes(found, NAMES, row)[0]


def test_launches_of_different_slots_are_unpaired_with_a_warning() -> None:
    apart = [launch(BASE, i, {TPOT: 5.0 + i / 100}, slot=0) for i in range(3)]
    apart += [launch(HEAD, i, {TPOT: 7.0 + i / 100}, slot=1, block=1) for i in range(3)]
    found = evidence.compared(apart, BASE, HEAD, TPOT)
    row = evidence.rows(found, NAMES, TPOT, 0.95, MARK)[0]
    assert row.method is Method.UNPAIRED
    assert evidence.notes(found, NAMES, row)[0].startswith("No slot has launches of both builds")


def test_a_block_that_moved_to_another_slot_is_two_blocks() -> None:
    """What the new slot adds must not pass for a difference: every other slot is 30 % slower, the builds are equal."""
    moved = blocks(
        BASE, HEAD, [[{TPOT: v} for v in (5.0, 5.01, 6.5, 6.51)], [{TPOT: v} for v in (5.0, 5.01, 5.0, 5.0)]]
    )
    moved = [
        one.model_copy(update={"slot_id": "slt_9"}) if one.block == 0 and one.position >= 2 else one for one in moved
    ]
    row = row_of(moved)
    assert row.verdict is Verdict.SAME


def test_the_asked_metric_comes_first_and_counts_are_not_compared() -> None:
    values = {TPOT: 5.0, "ttft_p50_ms": 200.0, "requests": 32.0, "output_tok_s": 800.0}
    launches = blocks(BASE, HEAD, [[values] * 4])
    found = evidence.compared(launches, BASE, HEAD, "ttft_p50_ms")
    rows = evidence.rows(found, NAMES, "ttft_p50_ms", 0.95, MARK)
    assert [row.metric for row in rows] == ["ttft_p50_ms", TPOT, "output_tok_s"]


def test_what_was_started_differently_is_listed_without_ports_and_nonces() -> None:
    launches = tpot(STORY)
    identity = launches[1].report.identity
    for i, one in enumerate(launches):
        if one.build.id == HEAD.id:
            changed = {"command": [*one.report.identity.command, "--async-scheduling"], "env": {"A": "1"}}
            report = one.report.model_copy(update={"identity": one.report.identity.model_copy(update=changed)})
            launches[i] = one.model_copy(update={"report": report})
    assert "--port" in identity.command
    found = evidence.start_differences(evidence.compared(launches, BASE, HEAD, TPOT), NAMES)
    assert found == [
        "only v0.18.0 was started with --profile v0.18.0",
        "only v0.18.0 was started with VLLM_ROCM_USE_AITER=1",
        "only v0.19.1 was started with --async-scheduling",
        "only v0.19.1 was started with --profile v0.19.1",
        "only v0.19.1 was started with A=1",
    ]


def test_real_numbers_are_marked_with_their_hardware_and_without_a_factor() -> None:
    real = build("v0.18.0", BuildKind.WHEELS)
    one = launch(real, 1, {TPOT: 4.0}, where=cell(BuildKind.WHEELS))
    assert marks(evidence.summary_of(one)) == "real, cpu"
    assert marks(evidence.summary_of(launch(BASE, 1, {TPOT: 4.0}))) == MARK


def test_percentages_have_two_digits() -> None:
    assert [percent(f) for f in (0.02, 0.0046, 0.467, 1.4)] == ["2 %", "0.46 %", "47 %", "140 %"]
