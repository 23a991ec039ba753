"""The queue's promises: who gets which job, and when."""

import pytest

from service.actions import attempts, cancel, enrol, events, lease, reap, requests
from service.contract.builds import BuildKind
from service.contract.errors import Conflict, InvalidInput, LeaseLost, ProtocolUnsupported, TokenInvalid
from service.contract.failures import FailureClass
from service.contract.ids import new_id
from service.contract.lease import (
    AttemptState,
    Directive,
    Heartbeat,
    Lease,
    LeaseRequest,
    Release,
    ReleaseReason,
    Renewal,
)
from service.domain.states import JobState, RequestState, RunnerState, SlotState
from tests.clocks import SimulatedClock
from tests.workshop import ADA, RunnerLife, Workshop


def renew(workshop: Workshop, leased: Lease, state: AttemptState = AttemptState.SERVING, step: str = "") -> Directive:
    said = Renewal(fence=leased.fence, state=state, step=step)
    return attempts.renew(workshop.ctx, leased.attempt_id, said).directive


def test_every_second_block_is_mirrored_and_the_request_ends_done(workshop: Workshop, runner: RunnerLife) -> None:
    asked = workshop.submit(blocks=2)
    served: dict[int, list[str]] = {0: [], 1: []}
    for _ in range(4):
        for slot in (0, 1):
            leased = workshop.work(runner, slot)
            served[slot].append(leased.build.name)
            assert workshop.finish(leased).accepted
    base, head = "v0.18.0", "v0.19.1"
    assert served == {0: [base, head, head, base], 1: [head, base, base, head]}
    assert workshop.lease(runner) is None
    view = requests.get_request(workshop.ctx, asked.id)
    assert (view.state, view.launches_done, view.launches_wanted) == (RequestState.DONE, 8, 8)
    assert view.ended_at is not None
    assert {job.launch_validity for job in view.jobs} == {"valid"}
    for block in (0, 1):
        assert len({job.slot_id for job in view.jobs if job.block == block}) == 1
    assert len({job.seed for job in view.jobs}) == 8


def test_two_requests_do_not_share_their_noise_unless_a_seed_says_so(workshop: Workshop) -> None:
    asked = [workshop.submit(), workshop.submit(), workshop.submit(seed=7), workshop.submit(seed=7)]
    seeds = [{job.seed for job in request.jobs} for request in asked]
    assert not seeds[0] & seeds[1]
    assert seeds[2] == seeds[3]


def test_a_block_stays_on_the_slot_that_began_it(workshop: Workshop, runner: RunnerLife) -> None:
    workshop.submit(blocks=1)
    workshop.finish(workshop.work(runner, 0))
    assert workshop.lease(runner, 1) is None
    assert workshop.lease(runner, 0) is not None


def test_two_slots_never_get_the_same_job(workshop: Workshop, runner: RunnerLife) -> None:
    workshop.submit(blocks=2)
    first, second = workshop.work(runner, 0), workshop.work(runner, 1)
    assert first.job_id != second.job_id
    assert workshop.lease(runner, 0) is None


def test_the_higher_priority_is_served_first_and_then_the_older(
    workshop: Workshop, runner: RunnerLife, clock: SimulatedClock
) -> None:
    old = workshop.submit()
    clock.advance(1)
    new = workshop.submit()
    clock.advance(1)
    urgent = workshop.submit(priority=5)
    slots = [workshop.runner(f"node-{n}", slots=1) for n in range(3)]
    assert [workshop.work(life).request_id for life in slots] == [urgent.id, old.id, new.id]


def test_a_runner_gets_only_jobs_of_hardware_and_kind_that_it_declared(workshop: Workshop) -> None:
    workshop.submit(hardware="mi350x")
    assert workshop.lease(workshop.runner("other-hardware", hardware=("simulated",))) is None
    assert workshop.lease(workshop.runner("other-kind", hardware=("mi350x",), kinds=(BuildKind.WHEELS,))) is None
    assert workshop.lease(workshop.runner("right", hardware=("cpu", "mi350x"))) is not None


def test_the_same_lease_request_gets_the_same_lease(workshop: Workshop, runner: RunnerLife) -> None:
    workshop.submit()
    first = workshop.lease(runner, 0, "lrq_same_one")
    assert first is not None
    assert workshop.lease(runner, 0, "lrq_same_one") == first
    workshop.finish(first)
    with pytest.raises(LeaseLost):
        workshop.lease(runner, 0, "lrq_same_one")


def test_the_first_renewal_makes_the_slot_busy_and_the_result_frees_it(workshop: Workshop, runner: RunnerLife) -> None:
    workshop.submit()

    def slot() -> SlotState:
        return enrol.list_runners(workshop.ctx)[0].slots[0].state

    leased = workshop.work(runner)
    assert slot() is SlotState.RESERVED
    renew(workshop, leased, AttemptState.PREPARING, "prepare")
    assert slot() is SlotState.BUSY
    workshop.finish(leased)
    assert slot() is SlotState.FREE


def test_an_attempt_goes_forward_only_but_an_old_renewal_still_keeps_it_alive(
    workshop: Workshop, runner: RunnerLife, clock: SimulatedClock
) -> None:
    workshop.submit()
    leased = workshop.work(runner)
    renew(workshop, leased, AttemptState.MEASURING, "measure")
    clock.advance(100)
    assert renew(workshop, leased, AttemptState.SERVING, "start") is Directive.CONTINUE
    clock.advance(100)
    assert reap.reap(workshop.ctx) == 0
    attempt = workshop.job(leased).attempt
    assert attempt is not None
    assert attempt.state is AttemptState.MEASURING


def test_a_renewal_cannot_claim_an_end(workshop: Workshop, runner: RunnerLife) -> None:
    workshop.submit()
    with pytest.raises(InvalidInput, match="allowed are"):
        renew(workshop, workshop.work(runner), AttemptState.COMPLETED)


def test_an_unrenewed_lease_expires_and_the_job_is_leased_again_under_a_greater_fence(
    workshop: Workshop, runner: RunnerLife, clock: SimulatedClock
) -> None:
    workshop.submit()
    first = workshop.work(runner)
    clock.advance(workshop.ctx.settings.lease_ttl_s)
    assert reap.reap(workshop.ctx) == 0
    clock.advance(1)
    assert reap.reap(workshop.ctx) == 2  # the attempt, and its runner, which was as silent
    assert reap.reap(workshop.ctx) == 0
    with pytest.raises(LeaseLost):
        renew(workshop, first)
    second = workshop.work(runner)
    assert (second.job_id, second.number, second.fence) == (first.job_id, 2, first.fence + 1)


def test_a_job_whose_runner_is_lost_four_times_fails_and_names_build_class_and_message(
    workshop: Workshop, runner: RunnerLife, clock: SimulatedClock
) -> None:
    asked = workshop.submit(blocks=2)
    for _ in range(4):
        workshop.work(runner)
        clock.advance(workshop.ctx.settings.lease_ttl_s + 1)
        reap.reap(workshop.ctx)
    view = requests.get_request(workshop.ctx, asked.id)
    assert view.state is RequestState.FAILED
    assert view.reason is not None
    assert view.reason.startswith("v0.18.0 could not be measured: runner_lost")
    assert "was not renewed" in view.reason
    assert view.jobs_by_state == {"failed": 1, "cancelled": 7}


def test_when_a_job_fails_for_good_the_running_ones_are_told_to_stop(workshop: Workshop, runner: RunnerLife) -> None:
    asked = workshop.submit(blocks=2)
    failing, running = workshop.work(runner, 0), workshop.work(runner, 1)
    workshop.fail(failing, FailureClass.SPEC_INVALID, "unknown argument --frob")
    assert requests.get_request(workshop.ctx, asked.id).reason == (
        "v0.18.0 could not be measured: spec_invalid in start (is never tried again): unknown argument --frob"
    )
    assert renew(workshop, running) is Directive.CANCEL
    attempts.release(workshop.ctx, running.attempt_id, Release(fence=running.fence, reason=ReleaseReason.CANCELLED))
    assert requests.get_request(workshop.ctx, asked.id).jobs_by_state == {"failed": 1, "cancelled": 7}


def test_a_failure_is_retried_after_its_delay_and_not_before(
    workshop: Workshop, runner: RunnerLife, clock: SimulatedClock
) -> None:
    workshop.submit()
    workshop.fail(workshop.work(runner), FailureClass.IMAGE_PULL)
    clock.advance(9)
    assert workshop.lease(runner) is None
    clock.advance(1)
    workshop.fail(workshop.work(runner), FailureClass.IMAGE_PULL)
    clock.advance(19)
    assert workshop.lease(runner) is None
    clock.advance(1)
    assert workshop.work(runner).number == 3


def test_cancelling_ends_what_waits_at_once_and_what_runs_through_its_runner(
    workshop: Workshop, runner: RunnerLife
) -> None:
    asked = workshop.submit(blocks=2)
    leased = workshop.work(runner)
    view = cancel.cancel_request(workshop.ctx, ADA, asked.id)
    assert (view.state, view.jobs_by_state) == (RequestState.OPEN, {"active": 1, "cancelled": 7})
    assert workshop.lease(runner, 1) is None
    assert renew(workshop, leased) is Directive.CANCEL
    attempts.release(workshop.ctx, leased.attempt_id, Release(fence=leased.fence, reason=ReleaseReason.CANCELLED))
    assert workshop.job(leased).state is JobState.CANCELLED
    assert requests.get_request(workshop.ctx, asked.id).state is RequestState.CANCELLED
    assert cancel.cancel_request(workshop.ctx, ADA, asked.id).state is RequestState.CANCELLED


def test_a_result_that_was_faster_than_the_cancel_is_kept(workshop: Workshop, runner: RunnerLife) -> None:
    asked = workshop.submit()
    leased = workshop.work(runner)
    cancel.cancel_request(workshop.ctx, ADA, asked.id)
    assert workshop.finish(leased).accepted
    assert workshop.job(leased).state is JobState.DONE
    assert requests.get_request(workshop.ctx, asked.id).state is RequestState.CANCELLED


def test_a_cancelled_job_whose_runner_vanishes_is_cancelled_and_not_tried_again(
    workshop: Workshop, runner: RunnerLife, clock: SimulatedClock
) -> None:
    asked = workshop.submit()
    leased = workshop.work(runner)
    cancel.cancel_request(workshop.ctx, ADA, asked.id)
    clock.advance(1000)
    reap.reap(workshop.ctx)
    assert workshop.job(leased).state is JobState.CANCELLED
    assert requests.get_request(workshop.ctx, asked.id).state is RequestState.CANCELLED


def test_a_request_that_is_done_cannot_be_cancelled(workshop: Workshop, runner: RunnerLife) -> None:
    asked = workshop.submit()
    for _ in range(4):
        workshop.finish(workshop.work(runner))
    with pytest.raises(Conflict, match="done"):
        cancel.cancel_request(workshop.ctx, ADA, asked.id)


@pytest.mark.parametrize("reason", [ReleaseReason.DRAIN, ReleaseReason.SHUTDOWN])
def test_giving_back_queues_the_job_at_once_and_burns_nothing(
    workshop: Workshop, runner: RunnerLife, reason: ReleaseReason
) -> None:
    workshop.submit()
    for number in range(1, 12):  # more often than any failure is forgiven
        leased = workshop.work(runner)
        assert leased.number == number
        release = Release(fence=leased.fence, reason=reason)
        attempts.release(workshop.ctx, leased.attempt_id, release)
        attempts.release(workshop.ctx, leased.attempt_id, release)
        assert workshop.job(leased).state is JobState.QUEUED


def test_a_restarted_runner_frees_its_slots_and_its_former_life_cannot_return(
    workshop: Workshop, runner: RunnerLife
) -> None:
    workshop.submit(blocks=2)
    first = workshop.work(runner)
    reborn = RunnerLife(runner.id)
    again = workshop.work(reborn)
    assert (again.job_id, again.number) == (first.job_id, 2)
    with pytest.raises(Conflict, match="newer process"):
        workshop.lease(runner, 1)
    with pytest.raises(Conflict, match="newer process"):
        enrol.heartbeat(
            workshop.ctx, runner.id, Heartbeat(agent_version="1", boot_id=runner.boot_id, disk_free_bytes=1)
        )
    attempt = workshop.job(first).attempt
    assert attempt is not None
    assert attempt.number == 2


def test_a_heartbeat_of_a_new_life_expires_the_former_ones_attempts(workshop: Workshop, runner: RunnerLife) -> None:
    workshop.submit()
    leased = workshop.work(runner)
    enrol.heartbeat(workshop.ctx, runner.id, Heartbeat(agent_version="1", boot_id=new_id("boot"), disk_free_bytes=1))
    view = workshop.job(leased)
    assert view.state is JobState.QUEUED
    assert view.attempt is not None
    assert view.attempt.state is AttemptState.EXPIRED
    assert view.attempt.failure is not None
    assert view.attempt.failure.failure_class is FailureClass.RUNNER_LOST


def test_a_draining_runner_finishes_and_gets_nothing_new(workshop: Workshop, runner: RunnerLife) -> None:
    workshop.submit(blocks=2)
    leased = workshop.work(runner, 0)
    assert enrol.drain_runner(workshop.ctx, ADA, "node", on=True).state is RunnerState.DRAINING
    assert workshop.lease(runner, 1) is None
    assert renew(workshop, leased) is Directive.DRAIN
    assert workshop.finish(leased).accepted
    assert workshop.lease(runner, 0) is None
    assert enrol.drain_runner(workshop.ctx, ADA, "node", on=False).state is RunnerState.ONLINE
    assert workshop.lease(runner, 0) is not None


def test_a_runner_that_says_it_drains_gets_nothing_until_it_says_otherwise(
    workshop: Workshop, runner: RunnerLife
) -> None:
    workshop.submit()
    beat = Heartbeat(agent_version="1", boot_id=runner.boot_id, disk_free_bytes=1, draining=True)
    assert enrol.heartbeat(workshop.ctx, runner.id, beat).directive is Directive.CONTINUE
    assert workshop.lease(runner) is None
    enrol.heartbeat(workshop.ctx, runner.id, beat.model_copy(update={"draining": False}))
    assert workshop.lease(runner) is not None


def test_another_protocol_version_is_refused_before_anything_is_handed_out(
    workshop: Workshop, runner: RunnerLife
) -> None:
    workshop.submit()
    with pytest.raises(ProtocolUnsupported):
        lease.try_lease(
            workshop.ctx,
            runner.id,
            LeaseRequest(protocol_version=2, request_id=new_id("lrq"), boot_id=runner.boot_id, slot=0),
        )
    assert workshop.work(runner).number == 1


def test_a_slot_that_was_never_declared_is_refused(workshop: Workshop, runner: RunnerLife) -> None:
    with pytest.raises(InvalidInput, match="slot 7"):
        workshop.lease(runner, 7)


def test_silent_runners_are_lost_and_drained_ones_offline(
    workshop: Workshop, runner: RunnerLife, clock: SimulatedClock
) -> None:
    drained = workshop.runner("drained")
    for life, draining in ((runner, False), (drained, True)):
        beat = Heartbeat(agent_version="1", boot_id=life.boot_id, disk_free_bytes=1, draining=draining)
        enrol.heartbeat(workshop.ctx, life.id, beat)
    clock.advance(workshop.ctx.settings.lost_after_s)
    assert reap.reap(workshop.ctx) == 0
    clock.advance(1)
    assert reap.reap(workshop.ctx) == 2
    assert {r.name: r.state for r in enrol.list_runners(workshop.ctx)} == {
        "node": RunnerState.LOST,
        "drained": RunnerState.OFFLINE,
    }
    workshop.lease(runner)
    assert {r.state for r in enrol.list_runners(workshop.ctx)} == {RunnerState.ONLINE, RunnerState.OFFLINE}


def test_a_block_leaves_a_slot_whose_runner_was_gone_for_longer_than_a_lease(
    workshop: Workshop, runner: RunnerLife, clock: SimulatedClock
) -> None:
    asked = workshop.submit()
    workshop.finish(workshop.work(runner))
    other = workshop.runner("other")
    clock.advance(workshop.ctx.settings.lost_after_s + 1)
    reap.reap(workshop.ctx)
    clock.advance(workshop.ctx.settings.lease_ttl_s)
    reap.reap(workshop.ctx)
    assert workshop.lease(other) is None
    clock.advance(1)
    assert reap.reap(workshop.ctx) == 3
    assert workshop.work(other).build.name == "v0.19.1"
    kinds = [event.kind for event in events.list_events(workshop.ctx, request_id=asked.id)]
    assert kinds.count("job.loosened") == 3


def test_revoking_a_runner_takes_its_work_and_its_voice(workshop: Workshop, runner: RunnerLife) -> None:
    workshop.submit()
    leased = workshop.work(runner)
    assert enrol.revoke_runner(workshop.ctx, ADA, "node").state is RunnerState.REVOKED
    assert workshop.job(leased).state is JobState.QUEUED
    with pytest.raises(TokenInvalid):
        workshop.lease(runner)
    with pytest.raises(LeaseLost):
        renew(workshop, leased)
