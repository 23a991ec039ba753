"""What becomes of a result: counted once, replayed, refused, or kept as an orphan."""

import math

import pytest

from service.actions import attempts, cancel, events, launches, reap, requests
from service.contract import canonical
from service.contract.errors import (
    ArtifactMissing,
    InvalidInput,
    LeaseLost,
    ProtocolUnsupported,
    ResultConflict,
)
from service.contract.failures import FailureClass
from service.contract.lease import AttemptState, Lease, Release, ReleaseReason
from service.contract.upload import Result
from service.domain.states import JobState, RequestState
from service.ruler.rawlog import Phase
from service.ruler.recompute import recompute
from tests.clocks import SimulatedClock
from tests.workshop import ADA, WORKLOAD, RunnerLife, Workshop, failed, package, raw_log


def expire(workshop: Workshop, clock: SimulatedClock) -> None:
    clock.advance(workshop.ctx.settings.lease_ttl_s + 1)
    reap.reap(workshop.ctx)


def orphans(workshop: Workshop) -> list[str]:
    found = events.list_events(workshop.ctx, limit=1000)
    return [event.data["result_sha256"] for event in found if event.kind == "attempt.orphan_result"]


def attempt_state(workshop: Workshop, leased: Lease) -> AttemptState:
    attempt = workshop.job(leased).attempt
    assert attempt is not None
    return attempt.state


def test_the_numbers_are_the_controllers_own_from_the_raw_logs(workshop: Workshop, runner: RunnerLife) -> None:
    asked = workshop.submit()
    made = package(step_ms=25.0)
    answer = workshop.finish(workshop.work(runner), made)
    assert answer.launch_id is not None
    view = launches.get_launch(workshop.ctx, answer.launch_id)
    assert view.validity == "valid"
    assert math.isclose(view.metrics["tpot_p50_ms"], 25.0)
    assert [(r.number, r.validity) for r in view.repetitions] == [(1, "valid"), (2, "valid"), (3, "valid")]
    for repetition in view.repetitions:
        raw = workshop.ctx.blobs.get(repetition.raw_log)
        metrics, judgement = recompute(raw, WORKLOAD, repetition.counters, view.report.block_size)
        assert metrics.model_dump(mode="json") == repetition.metrics
        assert [r.code for r in judgement.reasons] == [r.code for r in repetition.reasons]
    assert view.request_id == asked.id
    assert {artifact.name for artifact in view.artifacts} == set(made.files)
    ref, path = launches.get_artifact(workshop.ctx, view.id, "rep-1.raw")
    assert canonical.digest_bytes(path.read_bytes()) == ref.sha256
    assert launches.list_launches(workshop.ctx, build=view.build.id, cell=view.cell_digest, request=asked.id) == [view]
    assert launches.list_launches(workshop.ctx, build="bld_other") == []


def test_the_same_result_again_is_a_replay_and_another_one_is_refused(workshop: Workshop, runner: RunnerLife) -> None:
    workshop.submit()
    leased = workshop.work(runner)
    first = workshop.finish(leased)
    again = workshop.finish(leased)
    assert (again.accepted, again.replay, again.launch_id) == (True, True, first.launch_id)
    with pytest.raises(ResultConflict):
        workshop.fail(leased, FailureClass.INTERNAL)
    assert attempt_state(workshop, leased) is AttemptState.COMPLETED
    assert len(launches.list_launches(workshop.ctx)) == 1


def test_a_failed_result_again_is_a_replay(workshop: Workshop, runner: RunnerLife) -> None:
    workshop.submit()
    leased = workshop.work(runner)
    workshop.fail(leased, FailureClass.SERVER_START)
    assert workshop.fail(leased, FailureClass.SERVER_START).replay
    assert workshop.work(runner, 1).number == 2


def test_a_late_result_counts_while_nobody_overtook_it_though_its_job_was_queued_again(
    workshop: Workshop, runner: RunnerLife, clock: SimulatedClock
) -> None:
    workshop.submit()
    leased = workshop.work(runner)
    expire(workshop, clock)
    assert workshop.job(leased).state is JobState.QUEUED
    answer = workshop.finish(leased)
    assert answer.accepted
    view = workshop.job(leased)
    assert (view.state, view.launch_id) == (JobState.DONE, answer.launch_id)
    assert view.attempt is not None
    assert view.attempt.late
    following = workshop.work(runner)
    assert (following.job_id != leased.job_id, following.build.name) == (True, "v0.19.1")


def test_a_late_result_that_was_overtaken_is_kept_and_never_used(
    workshop: Workshop, runner: RunnerLife, clock: SimulatedClock
) -> None:
    workshop.submit()
    slow = workshop.work(runner)
    expire(workshop, clock)
    fast = workshop.work(runner)
    assert fast.job_id == slow.job_id
    answer = workshop.finish(slow, package(99.0))
    assert (answer.accepted, answer.launch_id) == (False, None)
    assert len(orphans(workshop)) == 1
    assert Result.model_validate_json(workshop.ctx.blobs.get(orphans(workshop)[0])).fence == slow.fence
    assert workshop.finish(slow, package(99.0)).replay
    assert len(orphans(workshop)) == 1
    assert workshop.job(fast).state is JobState.ACTIVE
    assert workshop.finish(fast, package(20.0)).accepted
    assert [round(launch.metrics["tpot_p50_ms"]) for launch in launches.list_launches(workshop.ctx)] == [20]


def test_a_late_failure_that_was_overtaken_changes_nothing(
    workshop: Workshop, runner: RunnerLife, clock: SimulatedClock
) -> None:
    workshop.submit()
    slow = workshop.work(runner)
    expire(workshop, clock)
    fast = workshop.work(runner)
    assert not workshop.fail(slow, FailureClass.SPEC_INVALID).accepted
    assert workshop.job(fast).state is JobState.ACTIVE
    assert workshop.finish(fast).accepted


def test_a_late_failure_that_nobody_overtook_says_what_really_happened(
    workshop: Workshop, runner: RunnerLife, clock: SimulatedClock
) -> None:
    asked = workshop.submit()
    leased = workshop.work(runner)
    expire(workshop, clock)
    assert workshop.fail(leased, FailureClass.SPEC_INVALID, "unknown argument").accepted
    assert workshop.job(leased).state is JobState.FAILED
    assert requests.get_request(workshop.ctx, asked.id).state is RequestState.FAILED


def test_a_late_failure_counts_as_its_own_class_and_not_as_a_lost_runner_too(
    workshop: Workshop, runner: RunnerLife, clock: SimulatedClock
) -> None:
    workshop.submit()
    for _ in range(2):
        leased = workshop.work(runner)
        expire(workshop, clock)
        assert workshop.job(leased).state is JobState.QUEUED
        workshop.fail(leased, FailureClass.SERVER_CRASH)
    assert workshop.job(leased).state is JobState.FAILED
    assert workshop.job(leased).attempts == 2


def test_a_result_for_a_released_attempt_is_kept_and_never_used(workshop: Workshop, runner: RunnerLife) -> None:
    workshop.submit()
    leased = workshop.work(runner)
    workshop.upload(leased, package())
    attempts.release(workshop.ctx, leased.attempt_id, Release(fence=leased.fence, reason=ReleaseReason.SHUTDOWN))
    assert not attempts.put_result(workshop.ctx, leased.attempt_id, package().result(leased.fence)).accepted
    assert workshop.job(leased).state is JobState.QUEUED
    assert attempt_state(workshop, leased) is AttemptState.RELEASED


def test_a_late_result_of_a_cancelled_job_is_kept_and_never_used(
    workshop: Workshop, runner: RunnerLife, clock: SimulatedClock
) -> None:
    asked = workshop.submit()
    leased = workshop.work(runner)
    cancel.cancel_request(workshop.ctx, ADA, asked.id)
    expire(workshop, clock)
    assert not workshop.finish(leased).accepted
    assert workshop.job(leased).state is JobState.CANCELLED
    assert attempt_state(workshop, leased) is AttemptState.EXPIRED


def test_a_result_needs_every_file_that_it_names(workshop: Workshop, runner: RunnerLife) -> None:
    workshop.submit()
    leased, made = workshop.work(runner), package()
    result = made.result(leased.fence)
    with pytest.raises(ArtifactMissing) as missing:
        attempts.put_result(workshop.ctx, leased.attempt_id, result)
    assert "rep-2.raw" in missing.value.details["missing"]
    workshop.upload(leased, made)
    hidden = result.model_copy(update={"artifacts": []})
    other = Result(fence=leased.fence, body=package(33.0).body)
    with pytest.raises(ArtifactMissing, match="raw log of repetition 1"):
        attempts.put_result(workshop.ctx, leased.attempt_id, other)
    assert attempts.put_result(workshop.ctx, leased.attempt_id, hidden).accepted


def test_a_raw_log_of_another_repetition_or_workload_is_refused_and_the_attempt_lives(
    workshop: Workshop, runner: RunnerLife
) -> None:
    workshop.submit()
    leased, made = workshop.work(runner), package()
    foreign = raw_log(Phase.MEASURE, 1, 20.0, WORKLOAD.model_copy(update={"seed": 5}))
    for data, complaint in ((made.files["rep-2.raw"], "repetition 2"), (foreign, "workload"), (b"junk", "raw log")):
        wrong = package()
        wrong.files["rep-1.raw"] = data
        launch = wrong.body.launch
        first = launch.repetitions[0].model_copy(update={"raw_log": canonical.digest_bytes(data)})
        launch = launch.model_copy(update={"repetitions": [first, *launch.repetitions[1:]]})
        name = f"wrong-{complaint.replace(' ', '-')}.raw"
        attempts.put_artifact(workshop.ctx, leased.attempt_id, leased.fence, name, canonical.digest_bytes(data), data)
        for ref in wrong.refs()[1:]:
            if ref.name != "rep-1.raw":
                attempts.put_artifact(
                    workshop.ctx, leased.attempt_id, leased.fence, ref.name, ref.sha256, wrong.files[ref.name]
                )
        warm = wrong.files["warm.raw"]
        attempts.put_artifact(
            workshop.ctx, leased.attempt_id, leased.fence, "warm.raw", canonical.digest_bytes(warm), warm
        )
        result = Result(fence=leased.fence, body=wrong.body.model_copy(update={"launch": launch}))
        with pytest.raises(InvalidInput, match=complaint):
            attempts.put_result(workshop.ctx, leased.attempt_id, result)
    assert workshop.job(leased).state is JobState.ACTIVE
    assert workshop.finish(leased, made).accepted


def test_an_invalid_launch_is_stored_and_its_job_tried_once_more(
    workshop: Workshop, runner: RunnerLife, clock: SimulatedClock
) -> None:
    asked = workshop.submit()
    first = workshop.work(runner)
    answer = workshop.finish(first, package(good=2))
    assert answer.accepted
    assert answer.launch_id is not None
    stored = launches.get_launch(workshop.ctx, answer.launch_id)
    assert (stored.validity, stored.metrics) == ("invalid", {})
    assert [r.code for r in stored.repetitions[2].reasons] == ["short_output"]
    assert (workshop.job(first).state, workshop.job(first).launch_validity) == (JobState.QUEUED, "invalid")
    assert attempt_state(workshop, first) is AttemptState.FAILED
    clock.advance(1)  # a job's launches are told apart by their time
    second = workshop.work(runner)
    assert second.job_id == first.job_id
    good = workshop.finish(second)
    assert workshop.job(first).launch_id == good.launch_id
    assert len(launches.list_launches(workshop.ctx, request=asked.id)) == 2


def test_two_invalid_launches_fail_the_request_and_say_why(workshop: Workshop, runner: RunnerLife) -> None:
    asked = workshop.submit()
    for _ in range(2):
        workshop.finish(workshop.work(runner), package(good=2))
    view = requests.get_request(workshop.ctx, asked.id)
    assert view.state is RequestState.FAILED
    assert view.reason is not None
    assert "invalid_measurement" in view.reason
    assert "2 of 3 repetitions may be used" in view.reason
    assert "repetition 3: short_output" in view.reason


def test_another_protocol_version_is_refused(workshop: Workshop, runner: RunnerLife) -> None:
    workshop.submit()
    leased = workshop.work(runner)
    with pytest.raises(ProtocolUnsupported):
        attempts.put_result(
            workshop.ctx,
            leased.attempt_id,
            Result(protocol_version=2, fence=leased.fence, body=failed(FailureClass.INTERNAL)),
        )


def test_a_result_under_another_fence_is_refused_and_leaves_no_trace(workshop: Workshop, runner: RunnerLife) -> None:
    workshop.submit()
    leased = workshop.work(runner)
    workshop.upload(leased, package())
    before = len(events.list_events(workshop.ctx, limit=1000))
    with pytest.raises(LeaseLost):
        attempts.put_result(workshop.ctx, leased.attempt_id, package().result(leased.fence + 1))
    assert len(events.list_events(workshop.ctx, limit=1000)) == before
    assert workshop.job(leased).state is JobState.ACTIVE
