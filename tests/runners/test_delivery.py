"""Handing in: the files first, the result last; whatever the controller says, nothing measured is lost by it."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from runners import delivery
from runners.clock import SystemClock
from runners.controller import Controller, Retry
from runners.delivery import Delivered, Parcel, deliver
from runners.journal import Journal
from runners.settings import RunnerSettings
from runners.spool import SpoolEntry, describe, entries, remove_before
from service.contract.failures import Failure, FailureClass
from service.contract.lease import Lease
from service.contract.upload import Completed, Failed, Identity, LaunchReport, RepetitionReport, Result, ServerCounters
from tests.runners.fake_controller import FakeController, Refusal

MakeLease = Callable[..., Lease]
HASH = "a" * 64
CLOCK = SystemClock()


@pytest.fixture
def lease(make_lease: MakeLease, controller: FakeController) -> Lease:
    lease = make_lease()
    controller.change(lambda memory: memory.given.update(x=lease))
    return lease


@pytest.fixture
def entry(settings: RunnerSettings, lease: Lease) -> SpoolEntry:
    entry = SpoolEntry.create(settings.attempts_dir, lease)
    (entry.folder / "warm.raw").write_bytes(b"warm")
    return entry


@pytest.fixture
def journal(settings: RunnerSettings, entry: SpoolEntry, lease: Lease) -> Journal:
    journal = Journal.open(settings.state_dir / "journal.jsonl", CLOCK)
    journal.leased(lease.attempt_id, 0)
    return journal


@pytest.fixture
def result(entry: SpoolEntry) -> Result:
    identity = Identity(version="1", served_model_name="n", pid=1, command=[], env={}, server_log=HASH)
    repetitions = [RepetitionReport(number=1, raw_log=HASH, counters=ServerCounters())]
    launch = LaunchReport(
        identity=identity,
        prompts=HASH,
        block_size=16,
        warm_log=HASH,
        repetitions=repetitions,
        steps=[],
        uptime_s=1,
    )
    result = Result(fence=1, body=Completed(launch=launch), artifacts=[describe("warm.raw", entry.folder / "warm.raw")])
    entry.keep(result)
    return result


@pytest.fixture
def hand_in(
    controller: FakeController, journal: Journal, entry: SpoolEntry, lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Result], Delivered]:
    monkeypatch.setattr(delivery, "FAULT_PAUSES_S", (0.01, 0.01))

    def run(result: Result) -> Delivered:
        async def body() -> Delivered:
            client = Controller(controller.url, "bkr_test", clock=CLOCK, retry=Retry(0.01, 0.02))
            try:
                return await deliver(client, journal, Parcel(entry, lease, result, lambda line: None))
            finally:
                await client.aclose()

        return asyncio.run(body())

    return run


def test_files_come_before_the_result_and_the_folder_goes_after_the_acknowledgement(
    hand_in: Callable[[Result], Delivered],
    result: Result,
    controller: FakeController,
    lease: Lease,
    entry: SpoolEntry,
    journal: Journal,
) -> None:
    assert hand_in(result) is Delivered.ACCEPTED
    assert [kind for kind, _ in controller.memory.order] == ["artifacts", "result"]
    assert controller.memory.results[lease.attempt_id] == result
    assert not entry.folder.exists()
    assert journal.state == {}


@pytest.mark.parametrize("code", ["lease_lost", "result_conflict", "not_found", "token_invalid"])
def test_a_refused_result_keeps_its_files_and_is_not_offered_again(
    hand_in: Callable[[Result], Delivered],
    result: Result,
    controller: FakeController,
    entry: SpoolEntry,
    journal: Journal,
    code: str,
) -> None:
    controller.change(lambda memory: memory.failing.update(result=Refusal(409, code)))
    assert hand_in(result) is Delivered.REFUSED
    assert (entry.folder / "warm.raw").exists()
    assert entry.result() is None
    assert journal.state == {}


def test_a_controller_that_fails_at_it_several_times_leaves_it_in_the_spool(
    hand_in: Callable[[Result], Delivered], result: Result, controller: FakeController, entry: SpoolEntry
) -> None:
    controller.change(lambda memory: memory.failing.update(result=Refusal(500, "internal")))
    assert hand_in(result) is Delivered.KEPT
    assert entry.result() == result
    controller.change(lambda memory: memory.failing.clear())
    assert hand_in(result) is Delivered.ACCEPTED


@pytest.mark.parametrize(("kind", "code"), [("artifacts", "too_large"), ("artifacts", "invalid_input")])
def test_a_part_that_is_not_taken_becomes_a_failure_upload_failed(
    hand_in: Callable[[Result], Delivered],
    result: Result,
    controller: FakeController,
    lease: Lease,
    kind: str,
    code: str,
) -> None:
    controller.change(lambda memory: memory.failing.update({kind: Refusal(413, code)}))
    assert hand_in(result) is Delivered.ACCEPTED
    body = controller.memory.results[lease.attempt_id].body
    assert isinstance(body, Failed)
    assert body.failure.failure_class is FailureClass.UPLOAD_FAILED
    assert code in body.failure.message


def test_a_file_that_the_disk_lost_is_reported_and_not_sent_for_ever(
    hand_in: Callable[[Result], Delivered], result: Result, controller: FakeController, lease: Lease, entry: SpoolEntry
) -> None:
    (entry.folder / "warm.raw").write_bytes(b"w")
    assert hand_in(result) is Delivered.ACCEPTED
    body = controller.memory.results[lease.attempt_id].body
    assert isinstance(body, Failed)
    assert "has 1 bytes, not 4" in body.failure.message


def test_an_earlier_failure_keeps_its_class_when_its_files_are_not_taken(
    hand_in: Callable[[Result], Delivered], result: Result, controller: FakeController, lease: Lease
) -> None:
    controller.change(lambda memory: memory.failing.update(artifacts=Refusal(413, "too_large")))
    failure = Failure(failure_class=FailureClass.SERVER_CRASH, step="load", message="it died")
    assert hand_in(result.model_copy(update={"body": Failed(failure=failure)})) is Delivered.ACCEPTED
    assert controller.memory.results[lease.attempt_id] == Result(fence=1, body=Failed(failure=failure))


def test_the_spool_lists_folders_with_leases_and_forgets_old_ones(
    settings: RunnerSettings, entry: SpoolEntry, lease: Lease, result: Result
) -> None:
    assert [one.attempt_id for one in entries(settings.attempts_dir)] == [lease.attempt_id]
    assert entry.lease() == lease
    assert (entry.folder / "lease.json").stat().st_mode & 0o777 == 0o600
    remove_before(settings.attempts_dir, CLOCK.now(), keep=[lease.attempt_id])
    assert entry.result() == result
    remove_before(settings.attempts_dir, CLOCK.now(), keep=[])
    assert entries(settings.attempts_dir) == []


def test_a_damaged_spool_counts_as_no_result(entry: SpoolEntry, tmp_path: Path) -> None:
    (entry.folder / "result.json").write_text("{torn")
    (entry.folder / "lease.json").write_text("{torn")
    assert entry.result() is None
    assert entry.lease() is None
