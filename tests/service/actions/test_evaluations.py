"""Accuracy from the answers to the sentence: what is asked, stored, recomputed and compared."""

import pytest

from service.actions import attempts, launches
from service.actions.accuracy import score_note
from service.actions.compare import compare_request
from service.actions.comparison_views import ComparisonView
from service.contract.errors import ArtifactMissing, InvalidInput
from service.contract.failures import FailureClass
from service.domain.accuracy import Gate
from service.domain.compare import Side, Verdict
from tests.answered import LABEL, SAMPLES, asked, samples, unscored
from tests.workshop import Package, RunnerLife, Workshop, package

MANY = "1" * 920 + "0" * 80


def compared(workshop: Workshop, runner: RunnerLife, base: Package, head: Package) -> ComparisonView:
    """One block, of which the first base and the first head were asked."""
    request = workshop.submit(gsm8k=True)
    for made in (base, head, package(26.0), package(20.0)):
        workshop.finish(workshop.work(runner), made)
    return compare_request(workshop.ctx, request.id)


def test_one_launch_of_each_side_is_asked_if_that_is_wanted_and_none_otherwise(
    workshop: Workshop, runner: RunnerLife
) -> None:
    for wanted, expected in ((True, [True, True, False, False] + [False] * 4), (False, [False] * 8)):
        workshop.submit(blocks=2, gsm8k=wanted)
        found = []
        for _ in range(8):
            leased = workshop.work(runner)
            found.append(leased.evaluation is not None)
            workshop.finish(leased)
        assert found == expected


def test_the_score_is_the_controllers_own_from_the_answers(workshop: Workshop, runner: RunnerLife) -> None:
    workshop.submit(gsm8k=True)
    answer = workshop.finish(workshop.work(runner), asked("1101"))
    assert answer.launch_id is not None
    found = launches.get_launch(workshop.ctx, answer.launch_id).evaluation
    assert found is not None
    assert (found.outcome, found.n, found.strict, found.flexible) == ("scored", 4, 0.75, 0.75)
    assert (found.strict_marks, found.flexible_marks, found.label) == ("1101", "1101", LABEL)
    assert found.strict_stderr == pytest.approx(0.25)
    ref, path = launches.get_artifact(workshop.ctx, answer.launch_id, SAMPLES)
    assert (path.read_bytes(), ref.sha256) == (samples("1101"), found.samples)
    assert score_note([found]) == f"0.7500 ± 0.2500 (n = 4, {LABEL})"


def test_a_launch_without_a_score_counts_for_speed_and_its_score_is_undefined_never_zero(
    workshop: Workshop, runner: RunnerLife
) -> None:
    view = compared(workshop, runner, unscored("a request failed: 500"), asked("1" * 10, step_ms=26.0))
    assert (view.verdict, view.rows[0].base.launches) == (Verdict.WORSE, 2)
    (first,) = [
        one.launch.evaluation for one in view.launches if one.side is Side.BASE and one.launch.evaluation is not None
    ]
    assert (first.outcome, first.strict, first.flexible, first.n) == ("undefined", None, None, None)
    assert first.failure is not None
    assert first.failure.failure_class is FailureClass.EVALUATION
    assert view.accuracy is not None
    assert (view.accuracy.gate, view.accuracy.base) == (None, None)
    assert view.accuracy.head is not None
    assert view.accuracy.sentence.startswith(
        "Accuracy can't be compared: v0.18.0 has no score: a request failed: 500 (simulated"
    )
    assert score_note([first]) == "undefined: a request failed: 500"


def test_a_report_of_failed_requests_is_no_score_whatever_else_it_says(workshop: Workshop, runner: RunnerLife) -> None:
    workshop.submit(gsm8k=True)
    answer = workshop.finish(workshop.work(runner), asked("1111", failed=1))
    assert answer.launch_id is not None
    found = launches.get_launch(workshop.ctx, answer.launch_id).evaluation
    assert found is not None
    assert (found.outcome, found.strict) == ("undefined", None)
    assert found.failure is not None
    assert found.failure.message == "1 requests got no answer"


def test_samples_that_were_not_uploaded_or_do_not_fit_are_refused_and_can_be_sent_again(
    workshop: Workshop, runner: RunnerLife
) -> None:
    workshop.submit(gsm8k=True)
    leased = workshop.work(runner)
    good = asked("1101")
    missing = Package({key: data for key, data in good.files.items() if key != SAMPLES}, good.body)
    with pytest.raises(ArtifactMissing, match="samples of the evaluation"):
        workshop.finish(leased, missing)
    with pytest.raises(InvalidInput, match="samples of the evaluation: it has 4 lines for 5 questions"):
        workshop.finish(leased, asked("1101", n=5))
    assert launches.list_launches(workshop.ctx) == []
    assert workshop.finish(leased, good).accepted
    assert attempts.put_result(workshop.ctx, leased.attempt_id, good.result(leased.fence)).replay


def test_the_same_answers_are_unchanged_and_the_speed_has_the_word(workshop: Workshop, runner: RunnerLife) -> None:
    head = MANY[:10].replace("1", "0", 4) + MANY[10:-3] + "111"
    view = compared(workshop, runner, asked(MANY), asked(head, step_ms=26.0))
    found = view.accuracy
    assert found is not None
    assert (found.gate, found.lost, found.won, found.n) == (Gate.UNCHANGED, 4, 3, 1000)
    assert found.sentence.startswith(
        f"v0.19.1 answers as v0.18.0 does, within 2 points: {LABEL} 0.9190 against 0.9200, a difference of -0.1 points"
    )
    assert view.sentence.startswith("v0.19.1 is worse than v0.18.0: TPOT")


def test_speed_bought_with_wrong_answers_is_said_first(workshop: Workshop, runner: RunnerLife) -> None:
    worse = "0" * 120 + MANY[120:]
    request = workshop.submit(gsm8k=True)
    for made in (asked(MANY), asked(worse, step_ms=15.0), package(15.0), package(20.0)):
        workshop.finish(workshop.work(runner), made)
    view = compare_request(workshop.ctx, request.id)
    assert view.accuracy is not None
    assert (view.accuracy.gate, view.verdict) == (Gate.BROKEN, Verdict.BETTER)
    assert view.sentence.startswith("v0.19.1 gives wrong answers where v0.18.0 gave right ones, beyond 2 points:")
    assert view.sentence.endswith(view.rows[0].sentence)


def test_few_questions_leave_it_unknown_with_a_forecast(workshop: Workshop, runner: RunnerLife) -> None:
    view = compared(workshop, runner, asked("1" * 90 + "0" * 10), asked("0" + "1" * 90 + "0" * 9, step_ms=26.0))
    assert view.accuracy is not None
    assert view.accuracy.gate is Gate.UNKNOWN
    assert view.accuracy.questions_needed is not None
    assert f"about {view.accuracy.questions_needed} questions more are needed" in view.accuracy.sentence
    assert view.sentence == view.rows[0].sentence


def test_answers_to_different_questions_are_never_compared(workshop: Workshop, runner: RunnerLife) -> None:
    view = compared(workshop, runner, asked("1111"), asked("1111", step_ms=26.0, questions="3" * 64))
    assert view.accuracy is not None
    assert view.accuracy.gate is None
    assert "were not asked the same questions" in view.accuracy.sentence


def test_a_comparison_that_nobody_asked_questions_in_says_nothing_of_accuracy(
    workshop: Workshop, runner: RunnerLife
) -> None:
    request = workshop.submit()
    for made in (package(20.0), package(26.0), package(26.0), package(20.0)):
        workshop.finish(workshop.work(runner), made)
    view = compare_request(workshop.ctx, request.id)
    assert view.accuracy is None


def test_answers_count_though_the_launch_is_no_evidence_for_speed(workshop: Workshop, runner: RunnerLife) -> None:
    request = workshop.submit(gsm8k=True)
    workshop.finish(workshop.work(runner), asked("1" * 50, good=2))
    view = compare_request(workshop.ctx, request.id)
    assert [one.used for one in view.launches] == [False]
    assert view.accuracy is not None
    assert view.accuracy.base is not None
    assert view.accuracy.base.strict == 1.0
    assert "v0.19.1 has no score: it was not asked" in view.accuracy.sentence


def test_an_evaluation_may_be_handed_in_without_having_been_asked_for(workshop: Workshop, runner: RunnerLife) -> None:
    workshop.submit()
    assert workshop.finish(workshop.work(runner), asked("11")).accepted
