"""The reaper comes again and again, outlives a failed round, and ends when it is told."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from service.actions import reap
from service.actions.context import Context, open_context
from service.clock import SystemClock
from service.contract.errors import Busy
from service.loops import reaper
from service.settings import Settings

LIMIT_S = 20.0


async def run_until(ctx: Context, rounds: list[Any], monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the loop with actions that answer from ``rounds``, and stop it in the last one; return how many were run."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    done = 0

    def reaped(_ctx: Context) -> int:
        nonlocal done
        outcome = rounds[done]
        done += 1
        if done == len(rounds):
            loop.call_soon_threadsafe(stopping.set)
        if isinstance(outcome, Exception):
            raise outcome
        return int(outcome)

    monkeypatch.setattr(reap, "reap", reaped)
    await asyncio.wait_for(reaper.run(ctx, stopping), LIMIT_S)
    return done


def test_it_comes_again_and_outlives_a_failed_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with open_context(Settings(data_dir=tmp_path, reap_every_s=0.05), SystemClock()) as ctx:
        rounds = [0, Busy("locked"), 3, RuntimeError("a bug"), 0]
        with caplog.at_level(logging.INFO, logger="backslide.reaper"):
            assert asyncio.run(run_until(ctx, rounds, monkeypatch)) == len(rounds)
    failures = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.exc_info is not None for record in failures] == [False, True]  # a traceback for our own bugs only
    assert "locked [busy]" in failures[0].getMessage()
    assert "reaped 3" in caplog.text


def test_it_ends_in_the_middle_of_its_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_context(Settings(data_dir=tmp_path, reap_every_s=3600), SystemClock()) as ctx:
        assert asyncio.run(run_until(ctx, [0], monkeypatch)) == 1
