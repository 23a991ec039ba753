"""Comparisons out of a database: which launches, which cell, and what is refused."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.actions.compare import compare_builds, compare_request
from service.contract.builds import BuildKind
from service.contract.errors import (
    Incomparable,
    InvalidInput,
    NotFound,
    UnknownBuild,
    UnknownMetric,
    UnknownRecipe,
    UnknownWorkload,
)
from service.domain.compare import Method, Verdict
from tests import measured
from tests.lab import Lab

TPOT = "tpot_p50_ms"


def four(base: float, head: float) -> list[dict[str, float] | None]:
    return [{TPOT: value, "ttft_p50_ms": 200.0} for value in (base, head, head * 1.004, base * 1.004)]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    lab.close()


def test_a_request_is_answered_by_its_own_launches(lab: Lab) -> None:
    base, head = lab.build("v0.18.0"), lab.build("v0.19.1")
    asked = lab.request(base, head, [four(5.0, 7.3), four(5.02, 7.35)])
    lab.request(base, head, [four(5.0, 5.0)])
    view = compare_request(lab.ctx, asked.id)
    assert (view.verdict, view.request_id, len(view.launches)) == (Verdict.WORSE, asked.id, 8)
    assert {one.launch.request_id for one in view.launches} == {asked.id}
    assert view.rows[0].ratio == pytest.approx(1.462, abs=0.005)
    assert view.marks == "simulated, time compressed 4×"
    assert view.sentence.startswith("v0.19.1 is worse than v0.18.0: TPOT p50 is 1.4")
    assert view.notes == []
    assert [row.metric for row in view.rows] == [TPOT, "ttft_p50_ms"]


def test_without_a_request_every_launch_of_both_counts(lab: Lab) -> None:
    base, head = lab.build("v0.18.0"), lab.build("v0.19.1")
    lab.request(base, head, [four(5.0, 7.3)])
    lab.request(base, head, [four(5.02, 7.35)])
    view = compare_builds(lab.ctx, "v0.18.0", head.id)
    assert (view.rows[0].method, len(view.launches), view.request_id) == (Method.BLOCKS, 8, None)


def test_the_other_way_round_inverts_the_answer(lab: Lab) -> None:
    lab.request(lab.build("v0.18.0"), lab.build("v0.19.1"), [four(5.0, 7.3), four(5.02, 7.35)])
    there, back = compare_builds(lab.ctx, "v0.18.0", "v0.19.1"), compare_builds(lab.ctx, "v0.19.1", "v0.18.0")
    assert (there.verdict, back.verdict) == (Verdict.WORSE, Verdict.BETTER)
    assert there.rows[0].ratio is not None
    assert back.rows[0].ratio == pytest.approx(1 / there.rows[0].ratio)


def test_builds_that_were_never_in_one_request_are_compared_over_their_slots(lab: Lab) -> None:
    one, two, three = (lab.build(name) for name in ("v0.18.0", "v0.19.1", "v0.22.0"))
    lab.request(one, two, [four(5.0, 7.3), four(5.02, 7.35)])
    lab.request(two, three, [four(7.3, 7.9), four(7.32, 7.92)])
    view = compare_builds(lab.ctx, "v0.18.0", "v0.22.0")
    assert view.rows[0].method is Method.SLOTS
    assert "not interleaved" in view.notes[0]


def test_the_newest_shared_cell_is_taken_and_the_others_are_listed(lab: Lab) -> None:
    base, head = lab.build("v0.18.0"), lab.build("v0.19.1")
    old, new = measured.cell(output_tokens=128), measured.cell(output_tokens=256)
    lab.request(base, head, [four(5.0, 5.0)], where=old)
    lab.request(base, head, [four(5.0, 7.3)], where=new)
    view = compare_builds(lab.ctx, "v0.18.0", "v0.19.1")
    assert view.cell.digest == new.digest
    assert [cell.digest for cell in view.other_cells] == [old.digest]
    chosen = compare_builds(lab.ctx, "v0.18.0", "v0.19.1", cell=old.digest[:12])
    assert (chosen.cell.digest, chosen.other_cells) == (old.digest, [])


def test_a_recipe_or_workload_narrows_the_choice(lab: Lab) -> None:
    base, head = lab.build("v0.18.0"), lab.build("v0.19.1")
    lab.request(base, head, [four(5.0, 7.3)], where=measured.cell())
    view = compare_builds(lab.ctx, base.id, head.id, recipe="kimi-decode", workload="long-prefix")
    assert len(view.launches) == 4
    with pytest.raises(UnknownRecipe):
        compare_builds(lab.ctx, base.id, head.id, recipe="no-such")
    with pytest.raises(UnknownWorkload):
        compare_builds(lab.ctx, base.id, head.id, workload="no-such")


def test_builds_of_one_name_and_two_kinds_are_not_mixed(lab: Lab) -> None:
    real = [lab.build(name, BuildKind.WHEELS) for name in ("v0.18.0", "v0.24.0")]
    simulated = [lab.build(name) for name in ("v0.18.0", "v0.24.0")]
    lab.request(simulated[0], simulated[1], [four(5.0, 7.3)])
    lab.request(real[0], real[1], [four(4.0, 6.0)])
    newest = compare_builds(lab.ctx, "v0.18.0", "v0.24.0")
    assert (newest.marks, newest.base.id) == ("real, cpu", real[0].id)
    assert {one.launch.build.kind for one in newest.launches} == {BuildKind.WHEELS}
    by_cell = compare_builds(lab.ctx, "v0.18.0", "v0.24.0", cell=measured.cell().digest)
    assert by_cell.base.id == simulated[0].id


def test_different_cells_are_refused_with_every_difference(lab: Lab) -> None:
    one, two, three = (lab.build(name) for name in ("v0.18.0", "v0.19.1", "v0.22.0"))
    lab.request(one, two, [four(5.0, 7.3)], where=measured.cell(output_tokens=256))
    lab.request(three, lab.build("v0.23.0"), [four(5.0, 7.3)], where=measured.cell(output_tokens=128))
    with pytest.raises(Incomparable) as refused:
        compare_builds(lab.ctx, "v0.18.0", "v0.22.0")
    assert refused.value.details["differences"] == ["workload.output_tokens: 256 != 128"]
    assert "workload.output_tokens: 256 != 128" in refused.value.message


def test_builds_of_different_kinds_are_refused(lab: Lab) -> None:
    lab.build("v0.18.0")
    lab.build("v0.24.0", BuildKind.WHEELS)
    with pytest.raises(Incomparable, match="simulated and wheels"):
        compare_builds(lab.ctx, "v0.18.0", "v0.24.0")


def test_a_build_that_was_never_measured_gives_unknown_and_says_which(lab: Lab) -> None:
    lab.request(lab.build("v0.18.0"), lab.build("v0.19.1"), [four(5.0, 7.3)])
    lab.build("v0.22.0")
    view = compare_builds(lab.ctx, "v0.18.0", "v0.22.0")
    assert view.verdict is Verdict.UNKNOWN
    assert "v0.22.0 has no usable launch" in view.sentence


def test_nothing_measured_at_all_says_how_to_measure(lab: Lab) -> None:
    lab.build("v0.18.0")
    lab.build("v0.19.1")
    with pytest.raises(NotFound, match=r"backslide compare v0\.18\.0 v0\.19\.1 --measure"):
        compare_builds(lab.ctx, "v0.18.0", "v0.19.1")


def test_an_open_request_is_answered_as_far_as_it_is(lab: Lab) -> None:
    base, head = lab.build("v0.18.0"), lab.build("v0.19.1")
    empty = lab.request(base, head, [[None] * 4])
    view = compare_request(lab.ctx, empty.id)
    assert (view.verdict, view.launches, view.cell.ruler_version) == (Verdict.UNKNOWN, [], None)
    assert view.notes == ["The request is still open: 0 of 4 launches are done."]
    half = lab.request(base, head, [four(5.0, 7.3), [{TPOT: 5.0}, None, None, None]])
    assert compare_request(lab.ctx, half.id).notes[0] == "The request is still open: 5 of 8 launches are done."


def test_an_invalid_launch_is_listed_with_its_reason_and_not_used(lab: Lab) -> None:
    base, head = lab.build("v0.18.0"), lab.build("v0.19.1")
    asked = lab.request(base, head, [four(5.0, 7.3), four(5.0, 7.3)], invalid=[(1, 2)])
    view = compare_request(lab.ctx, asked.id)
    unused = [one for one in view.launches if not one.used]
    assert [(one.launch.block, one.launch.position, one.unused_because) for one in unused] == [(1, 3, "invalid")]
    assert view.rows[0].head.launches == 3


def test_a_metric_is_known_with_and_without_its_unit_and_counts_can_not_be_compared(lab: Lab) -> None:
    base, head = lab.build("v0.18.0"), lab.build("v0.19.1")
    asked = lab.request(base, head, [four(5.0, 7.3)])
    assert compare_builds(lab.ctx, base.id, head.id, metric="tpot_p50").metric == TPOT
    assert compare_request(lab.ctx, asked.id, "ttft_p50").metric == "ttft_p50_ms"
    for name in ("nonsense", "requests", "duration_s"):
        with pytest.raises(UnknownMetric) as refused:
            compare_request(lab.ctx, asked.id, name)
        assert TPOT in refused.value.details["allowed"]
        assert "requests" not in refused.value.details["allowed"]
        with pytest.raises(UnknownMetric):
            lab.request(base, head, [[None] * 4], metric=name)


def test_what_does_not_exist_is_refused(lab: Lab) -> None:
    base, head = lab.build("v0.18.0"), lab.build("v0.19.1")
    asked = lab.request(base, head, [four(5.0, 7.3)])
    with pytest.raises(UnknownBuild):
        compare_builds(lab.ctx, "v0.18.0", "v9.9.9")
    with pytest.raises(NotFound):
        compare_request(lab.ctx, "req_ffffffffffffffff")
    with pytest.raises(InvalidInput, match=r"compares v0\.18\.0 with v0\.19\.1"):
        compare_builds(lab.ctx, "v0.19.1", "v0.18.0", request_id=asked.id)
    with pytest.raises(InvalidInput, match="at least 6"):
        compare_builds(lab.ctx, "v0.18.0", "v0.19.1", cell="ab")
