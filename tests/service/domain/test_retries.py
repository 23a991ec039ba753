"""The table of retries."""

from collections import Counter

import pytest

from service.contract.failures import FailureClass
from service.domain.retries import MAX_BURNED, POLICIES, GiveUp, Retry, decide


def run(failure: FailureClass) -> list[float]:
    """The delays of a job that fails in one way until it is given up."""
    delays: list[float] = []
    for burned in range(1, 20):
        decision = decide(failure, Counter({failure: burned - 1}), burned)
        if isinstance(decision, GiveUp):
            return delays
        delays.append(decision.delay_s)
    raise AssertionError("never given up")


@pytest.mark.parametrize(
    ("failure", "delays"),
    [
        (FailureClass.SPEC_INVALID, []),
        (FailureClass.IMAGE_PULL, [10, 20, 40]),
        (FailureClass.DISK_FULL, [30, 60, 120, 240, 480]),
        (FailureClass.SERVER_START, [0]),
        (FailureClass.SERVER_CRASH, [0]),
        (FailureClass.TIMEOUT_STEP, [0]),
        (FailureClass.INVALID_MEASUREMENT, [0]),
        (FailureClass.RUNNER_LOST, [0, 0, 0]),
        (FailureClass.UPLOAD_FAILED, [10]),
        (FailureClass.INTERNAL, [0]),
    ],
)
def test_each_class_is_tried_again_as_often_as_it_deserves(failure: FailureClass, delays: list[float]) -> None:
    assert run(failure) == delays


def test_every_class_has_a_policy() -> None:
    assert set(POLICIES) == set(FailureClass)


def test_classes_are_counted_apart() -> None:
    before = Counter({FailureClass.RUNNER_LOST: 2, FailureClass.SERVER_START: 1})
    assert decide(FailureClass.SERVER_CRASH, before, 4) == Retry(0.0)
    assert isinstance(decide(FailureClass.SERVER_START, before, 4), GiveUp)


def test_a_job_that_fails_in_ever_new_ways_is_given_up() -> None:
    assert isinstance(decide(FailureClass.INTERNAL, {}, MAX_BURNED - 1), Retry)
    decision = decide(FailureClass.INTERNAL, {}, MAX_BURNED)
    assert decision == GiveUp(f"{MAX_BURNED} attempts failed; at most {MAX_BURNED} are made")
