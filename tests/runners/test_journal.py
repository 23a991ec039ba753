"""The journal: what it adds up to, also after a crash in any line, a full disk, and a compaction."""

import errno
import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.clock import SystemClock
from runners.journal import Journal, OpenAttempt
from runners.launch.sessions import ProcessRecord, Session

CLOCK = SystemClock()
LEADER, MEMBER = ProcessRecord(100, 5), ProcessRecord(101, 6)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def _filled(path: Path) -> Journal:
    journal = Journal.open(path, CLOCK)
    journal.leased("att_1", 1)
    journal.starting("att_1")
    journal.spawned("att_1", LEADER, "boot")
    journal.members("att_1", (LEADER, MEMBER))
    journal.leased("att_2", 0)
    journal.spooled("att_2")
    journal.leased("att_3", 0)
    journal.releasing("att_3", "shutdown")
    journal.leased("att_4", 0)
    journal.closed("att_4", "accepted")
    return journal


def test_open_attempts_are_known_after_a_restart_and_closed_ones_forgotten(path: Path) -> None:
    before = _filled(path).state
    assert before == {
        "att_1": OpenAttempt("att_1", 1, "members", (Session(LEADER, "boot", (LEADER, MEMBER)),)),
        "att_2": OpenAttempt("att_2", 0, "spooled"),
        "att_3": OpenAttempt("att_3", 0, "releasing", (), "shutdown"),
    }
    assert Journal.peek(path, CLOCK).state == before
    assert Journal.open(path, CLOCK).state == before
    assert Journal.open(path, CLOCK).state == before, "a compaction changes nothing"
    assert "att_4" not in path.read_text()


def test_only_its_user_can_read_it(path: Path) -> None:
    _filled(path)
    assert path.stat().st_mode & 0o777 == 0o600
    Journal.open(path, CLOCK)
    assert path.stat().st_mode & 0o777 == 0o600


@settings(max_examples=60, deadline=None)
@given(st.integers(min_value=0, max_value=1200))
def test_a_crash_in_any_byte_loses_at_most_the_line_that_was_being_written(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    _filled(path)
    content = path.read_bytes()[:cut]
    path.write_bytes(content)
    journal = Journal.open(path, CLOCK)
    assert journal.skipped_lines <= 1
    whole = content[: content.rfind(b"\n") + 1]
    begun = {json.loads(line)["attempt_id"] for line in whole.splitlines()}
    closed = {json.loads(line)["attempt_id"] for line in whole.splitlines() if json.loads(line)["kind"] == "closed"}
    assert begun - closed <= set(journal.state)
    journal.leased("att_9", 0)
    assert "att_9" in Journal.peek(path, CLOCK).state


def test_a_damaged_line_in_the_middle_is_skipped_and_counted(path: Path) -> None:
    _filled(path)
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([lines[0], b'{"kind":"leased"}', b"\x00\x00", *lines[1:]]) + b"\n")
    journal = Journal.open(path, CLOCK)
    assert journal.skipped_lines == 2
    assert set(journal.state) == {"att_1", "att_2", "att_3"}


def test_on_a_full_disk_the_room_that_was_kept_is_used(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal.open(path, CLOCK)
    reserve = path.with_suffix(".reserve")
    assert reserve.stat().st_size > 0
    write = os.write

    def full(descriptor: int, data: bytes) -> int:
        if reserve.exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", full)
    journal.leased("att_1", 0)
    assert not reserve.exists()
    assert set(Journal.peek(path, CLOCK).state) == {"att_1"}
