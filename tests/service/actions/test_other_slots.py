"""Where a server did not start it is not tried again, while there is another slot."""

import pytest

from service.actions import enrol, events, reap, requests
from service.contract.failures import FailureClass
from service.contract.lease import Heartbeat
from service.domain.states import RequestState
from tests.workshop import ADA, RunnerLife, Workshop


def test_a_server_that_did_not_start_is_tried_on_another_slot_and_its_block_follows(
    workshop: Workshop, runner: RunnerLife
) -> None:
    asked = workshop.submit()
    first = workshop.work(runner, 0)
    workshop.fail(first, FailureClass.SERVER_START)
    assert workshop.lease(runner, 0) is None
    second = workshop.work(runner, 1)
    assert (second.job_id, second.number) == (first.job_id, 2)
    workshop.finish(second)
    assert workshop.lease(runner, 0) is None
    for _ in range(3):
        workshop.finish(workshop.work(runner, 1))
    assert requests.get_request(workshop.ctx, asked.id).state is RequestState.DONE


def test_a_server_that_starts_on_neither_of_two_slots_fails_its_request(workshop: Workshop, runner: RunnerLife) -> None:
    asked = workshop.submit()
    for slot in (0, 1):
        workshop.fail(workshop.work(runner, slot), FailureClass.SERVER_START, "no such kernel")
    view = requests.get_request(workshop.ctx, asked.id)
    assert view.state is RequestState.FAILED
    assert view.reason is not None
    assert "no such kernel" in view.reason


def test_where_there_is_one_slot_a_server_is_tried_there_again(workshop: Workshop) -> None:
    alone = workshop.runner("alone", slots=1)
    workshop.runner("elsewhere", hardware=("mi350x",))
    workshop.submit()
    workshop.fail(workshop.work(alone), FailureClass.SERVER_START)
    assert workshop.work(alone).number == 2


def test_a_job_stops_avoiding_a_slot_when_the_other_one_is_gone(workshop: Workshop) -> None:
    one, other = workshop.runner("one", slots=1), workshop.runner("other", slots=1)
    asked = workshop.submit()
    for life in (other, one):
        enrol.heartbeat(workshop.ctx, life.id, Heartbeat(agent_version="1", boot_id=life.boot_id, disk_free_bytes=1))
    workshop.fail(workshop.work(one), FailureClass.SERVER_START)
    assert (reap.reap(workshop.ctx), workshop.lease(one)) == (0, None)
    enrol.drain_runner(workshop.ctx, ADA, "other", True)
    assert reap.reap(workshop.ctx) == 1
    assert workshop.work(one).number == 2
    kinds = [event.kind for event in events.list_events(workshop.ctx, request_id=asked.id)]
    assert kinds.count("job.no_other_slot") == 1


@pytest.mark.parametrize("failure_class", [FailureClass.INVALID_MEASUREMENT, FailureClass.INTERNAL])
def test_what_is_not_about_the_slot_is_tried_where_it_was(
    workshop: Workshop, runner: RunnerLife, failure_class: FailureClass
) -> None:
    workshop.submit()
    workshop.fail(workshop.work(runner), failure_class)
    assert workshop.lease(runner, 1) is None
    assert workshop.work(runner, 0).number == 2
