"""Logs and artifacts of an attempt, and a disk that is full."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from service.actions import attempts, events, launches, reap
from service.actions.context import Context
from service.contract import canonical
from service.contract.errors import Conflict, DiskFull, InvalidInput, LeaseLost, OffsetMismatch, TooLarge
from service.contract.failures import FailureClass
from service.contract.lease import Lease
from service.domain.states import JobState
from service.settings import Settings
from service.store.blobs import Blobs
from tests.clocks import SimulatedClock
from tests.workshop import RunnerLife, Workshop, package

SERVER_LOG = b"INFO ready\n"


class FullDisk(Blobs):
    """Files for which there is no room, until there is."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.full = False

    def _write(self, path: Path, data: bytes) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        super()._write(path, data)


def put(ctx: Context, leased: Lease, name: str = "server.log", data: bytes = SERVER_LOG) -> None:
    attempts.put_artifact(ctx, leased.attempt_id, leased.fence, name, canonical.digest_bytes(data), data)


def test_a_log_grows_at_its_end_and_a_wrong_offset_is_told_the_right_one(
    workshop: Workshop, runner: RunnerLife
) -> None:
    workshop.submit()
    leased = workshop.work(runner)
    ctx, key = workshop.ctx, (leased.attempt_id, leased.fence)
    assert attempts.append_log(ctx, *key, 0, b"pulled\n").size_bytes == 7
    with pytest.raises(OffsetMismatch) as mismatch:
        attempts.append_log(ctx, *key, 0, b"pulled\n")
    assert mismatch.value.details == {"size_bytes": 7}
    assert attempts.append_log(ctx, *key, 7, b"started\n").size_bytes == 15
    assert attempts.read_log(ctx, leased.attempt_id) == b"pulled\nstarted\n"


def test_of_a_long_log_head_and_tail_are_kept(workshop: Workshop, runner: RunnerLife) -> None:
    small = Settings(data_dir=workshop.ctx.settings.data_dir, max_log_bytes=2**16, demo=True)
    ctx = replace(workshop.ctx, settings=small)
    workshop.submit()
    leased = workshop.work(runner)
    whole = b"".join(b"line %06d\n" % n for n in range(20_000))
    for offset in range(0, len(whole), 50_000):
        attempts.append_log(ctx, leased.attempt_id, leased.fence, offset, whole[offset : offset + 50_000])
    kept = attempts.read_log(ctx, leased.attempt_id)
    head, tail = whole[: 2**15], whole[-(2**15) :]
    assert kept == head + f"\n[{len(whole) - 2**16} bytes left out]\n".encode() + tail
    files = list((small.data_dir / "logs").iterdir())
    assert [file.stat().st_size for file in files] == [2**16]


def test_a_log_chunk_has_a_limit(workshop: Workshop, runner: RunnerLife) -> None:
    workshop.submit()
    leased = workshop.work(runner)
    with pytest.raises(TooLarge):
        attempts.append_log(workshop.ctx, leased.attempt_id, leased.fence, 0, bytes(attempts.MAX_LOG_CHUNK_BYTES + 1))


def test_an_artifact_again_is_a_replay_and_another_content_under_its_name_is_refused(
    workshop: Workshop, runner: RunnerLife
) -> None:
    workshop.submit()
    leased = workshop.work(runner)
    put(workshop.ctx, leased)
    put(workshop.ctx, leased)
    with pytest.raises(Conflict, match="another content"):
        put(workshop.ctx, leased, data=b"else")
    workshop.fail(leased, FailureClass.SERVER_START)
    put(workshop.ctx, leased)  # an answer that was lost after the attempt's end
    with pytest.raises(LeaseLost):
        put(workshop.ctx, leased, name="more.log")


def test_an_artifact_whose_bytes_were_damaged_or_are_too_many_is_refused(
    workshop: Workshop, runner: RunnerLife
) -> None:
    workshop.submit()
    leased = workshop.work(runner)
    with pytest.raises(InvalidInput, match="damaged"):
        attempts.put_artifact(workshop.ctx, leased.attempt_id, leased.fence, "a.raw", "0" * 64, b"abc")
    small = Settings(data_dir=workshop.ctx.settings.data_dir, max_artifact_bytes=2**20, demo=True)
    with pytest.raises(TooLarge):
        put(replace(workshop.ctx, settings=small), leased, data=bytes(2**20 + 1))


def test_an_upload_keeps_its_attempt_alive(workshop: Workshop, runner: RunnerLife, clock: SimulatedClock) -> None:
    workshop.submit()
    leased = workshop.work(runner)
    clock.advance(170)
    put(workshop.ctx, leased)
    clock.advance(170)
    reap.reap(workshop.ctx)
    assert workshop.job(leased).state is JobState.ACTIVE


def test_a_full_disk_refuses_files_and_results_half_writes_nothing_and_takes_them_later(
    workshop: Workshop, runner: RunnerLife
) -> None:
    disk = FullDisk(workshop.ctx.blobs.root)
    shop = Workshop(replace(workshop.ctx, blobs=disk))
    shop.submit()
    leased, made = shop.work(runner), package()
    disk.full = True
    with pytest.raises(DiskFull) as full:
        shop.upload(leased, made)
    assert (full.value.status, full.value.retryable) == (507, True)
    disk.full = False
    shop.upload(leased, made)
    stored = sorted(path.name for path in disk.root.rglob("*") if path.is_file())
    before = len(events.list_events(shop.ctx, limit=1000))
    disk.full = True
    with pytest.raises(DiskFull):
        attempts.put_result(shop.ctx, leased.attempt_id, made.result(leased.fence))
    assert sorted(path.name for path in disk.root.rglob("*") if path.is_file()) == stored
    assert len(events.list_events(shop.ctx, limit=1000)) == before
    assert launches.list_launches(shop.ctx) == []
    disk.full = False
    assert attempts.put_result(shop.ctx, leased.attempt_id, made.result(leased.fence)).accepted
    assert len(launches.list_launches(shop.ctx)) == 1


def test_a_full_disk_refuses_a_log_chunk_and_takes_it_later(
    workshop: Workshop, runner: RunnerLife, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop.submit()
    leased = workshop.work(runner)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", _no_room)
        with pytest.raises(DiskFull):
            attempts.append_log(workshop.ctx, leased.attempt_id, leased.fence, 0, b"abc")
    assert attempts.read_log(workshop.ctx, leased.attempt_id) == b""
    assert attempts.append_log(workshop.ctx, leased.attempt_id, leased.fence, 0, b"abc").size_bytes == 3


def _no_room(handle: int, data: bytes, position: int) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
