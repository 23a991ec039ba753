"""Every loop comes again and again, outlives a failed round, and ends when it is told."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from service.actions import plan, reap
from service.actions.context import Context, open_context
from service.clock import SystemClock
from service.contract.errors import Busy
from service.loops import rounds
from service.settings import Settings

LIMIT_S = 20.0
LOOPS = {"reaper": (reap, "reap"), "planner": (plan, "plan")}


async def run_until(ctx: Context, name: str, answers: list[Any], monkeypatch: pytest.MonkeyPatch) -> int:
    """Run a loop whose action answers from ``answers``, and stop it in the last one; return how many were run."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    done = 0

    def act(_ctx: Context) -> int:
        nonlocal done
        outcome = answers[done]
        done += 1
        if done == len(answers):
            loop.call_soon_threadsafe(stopping.set)
        if isinstance(outcome, Exception):
            raise outcome
        return int(outcome)

    monkeypatch.setattr(*LOOPS[name], act)
    (one,) = [one for one in rounds.all_rounds(ctx.settings) if one.name == name]
    await asyncio.wait_for(rounds.run(ctx, stopping, one), LIMIT_S)
    return done


def test_there_is_no_loop_that_is_not_tested_here() -> None:
    assert {one.name for one in rounds.all_rounds(Settings())} == set(LOOPS)


@pytest.mark.parametrize("name", LOOPS)
def test_it_comes_again_and_outlives_a_failed_round(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(data_dir=tmp_path, reap_every_s=0.05, plan_every_s=0.05)
    with open_context(settings, SystemClock()) as ctx:
        answers = [0, Busy("locked"), ExceptionGroup("1 of 2", [Busy("locked")]), 3, RuntimeError("a bug"), 0]
        with caplog.at_level(logging.INFO, logger="backslide.rounds"):
            assert asyncio.run(run_until(ctx, name, answers, monkeypatch)) == len(answers)
    failures = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.exc_info is not None for record in failures] == [False, True, True]  # no traceback for a refusal
    assert "locked [busy]" in failures[0].getMessage()
    assert f"{name}: 3" in caplog.text


@pytest.mark.parametrize("name", LOOPS)
def test_it_ends_in_the_middle_of_its_pause(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_context(Settings(data_dir=tmp_path, reap_every_s=3600, plan_every_s=3600), SystemClock()) as ctx:
        assert asyncio.run(run_until(ctx, name, [0], monkeypatch)) == 1
