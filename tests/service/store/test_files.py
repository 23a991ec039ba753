"""Files by content, attempts' logs, and columns that round-trip."""

import errno
import os
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.engine.default import DefaultDialect

from service.contract import canonical
from service.contract.errors import DiskFull, InvalidInput, NotFound
from service.contract.lease import AttemptState
from service.store import guards
from service.store.blobs import Blobs
from service.store.columns import EnumText, UtcTime
from service.store.engine import Store
from service.store.logs import AttemptLogs
from service.store.tables import EnrolmentToken

ATTEMPT = "att_0123456789abcdef"
DATA = b"raw log"
DIALECT = DefaultDialect()
SHA = canonical.digest_bytes(DATA)


def test_a_file_is_stored_once_under_its_hash(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    assert not blobs.has(SHA)
    with pytest.raises(NotFound):
        blobs.get(SHA)
    blobs.put(SHA, DATA)
    written = blobs.path(SHA).stat().st_mtime_ns
    blobs.put(SHA, DATA)
    assert (blobs.get(SHA), blobs.path(SHA).stat().st_mtime_ns) == (DATA, written)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [SHA]


@pytest.mark.parametrize("name", ["../../etc/passwd", SHA.upper(), SHA[:-1], "", f"{SHA}\n"])
def test_only_a_hash_names_a_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput):
        Blobs(tmp_path).path(name)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def fsync(handle: int) -> None:
        raise OSError(code, os.strerror(code))

    blobs = Blobs(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fsync)
        with pytest.raises(DiskFull):
            blobs.put(SHA, DATA)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    blobs.put(SHA, DATA)
    assert blobs.get(SHA) == DATA


@given(chunks=st.lists(st.binary(min_size=1, max_size=90), max_size=12), cap=st.integers(2, 80))
def test_a_log_is_whole_up_to_its_cap_and_head_and_tail_beyond(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes], cap: int
) -> None:
    root = tmp_path_factory.mktemp("logs")
    logs = AttemptLogs(root, cap)
    size = 0
    for chunk in chunks:
        logs.write(ATTEMPT, size, chunk)
        size += len(chunk)
    whole = b"".join(chunks)
    kept = logs.read(ATTEMPT, size)
    if size <= cap:
        assert kept == whole
    else:
        head, tail = cap // 2, cap - cap // 2
        assert kept == whole[:head] + f"\n[{size - cap} bytes left out]\n".encode() + whole[-tail:]
        assert (root / f"{ATTEMPT}.log").stat().st_size == cap


def test_what_was_never_acknowledged_is_written_over(tmp_path: Path) -> None:
    logs = AttemptLogs(tmp_path, 100)
    logs.write(ATTEMPT, 0, b"lost answer")
    logs.write(ATTEMPT, 0, b"said")
    assert logs.read(ATTEMPT, 4) == b"said"
    assert logs.read("att_ffffffffffffffff", 0) == b""
    with pytest.raises(InvalidInput):
        logs.write("../x", 0, b"")


@given(at=st.datetimes(timezones=st.just(UTC)))
def test_a_time_comes_back_to_the_microsecond(at: datetime) -> None:
    assert UtcTime().process_result_value(UtcTime().process_bind_param(at, DIALECT), DIALECT) == at


def test_a_time_is_stored_in_utc_and_without_a_zone_not_at_all(store: Store) -> None:
    there = timezone(timedelta(hours=9))
    at = datetime(2026, 3, 1, 8, 30, 0, 1, tzinfo=there)
    row = EnrolmentToken(id="enr_1", sha256="x", created_by="ada", created_at=at, expires_at=at)
    with store.write() as session:
        guards.insert(session, row)
    with store.read() as session:
        found = guards.fresh(session, EnrolmentToken, "enr_1")
    assert found is not None
    assert (found.created_at, found.created_at.tzinfo, found.used_at) == (at, UTC, None)
    with pytest.raises(ValueError, match="zone"):
        UtcTime().process_bind_param(datetime(2026, 1, 1), DIALECT)  # noqa: DTZ001


def test_a_word_that_is_no_state_cannot_be_stored() -> None:
    column = EnumText(AttemptState)
    assert column.process_bind_param("leased", DIALECT) == "leased"
    assert column.process_result_value("leased", DIALECT) is AttemptState.LEASED
    with pytest.raises(ValueError, match="sleeping"):
        column.process_bind_param("sleeping", DIALECT)
