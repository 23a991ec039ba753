"""Planners, runners, the reaper and a person with the pause button, all at once: every step is whole, none is twice."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from service.actions import bisect, plan, reap
from service.contract.errors import Busy, Conflict, LeaseLost
from service.domain import bisect as engine
from service.domain.bisect import Answer
from service.domain.states import BISECT, JobState, is_final
from tests.bisecting import Bisecting, halving, slow_from, stock_lineup
from tests.workshop import ADA, RunnerLife, Workshop

LIMIT_S = 120.0
PAUSES = 5


@pytest.mark.timeout(300)
def test_whatever_happens_at_once_a_bisect_comes_to_its_finding(
    workshop: Workshop, runner: RunnerLife, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "decide", halving)
    stock_lineup(workshop)
    at_work = Bisecting(workshop, runner, slow_from("v0.19.0"))
    ctx = workshop.ctx
    asked = [at_work.start(), at_work.start(seed=1)]
    ended, taken = threading.Event(), Counter[str]()
    until = time.monotonic() + LIMIT_S

    def repeat(name: str, act: Callable[[], int]) -> None:
        while not ended.wait(0.01):
            assert time.monotonic() < until, f"{name}: the bisects have not ended"
            try:
                taken[name] += act()
            except* (Busy, Conflict, LeaseLost):  # of a planner they come in a group
                taken["overtaken"] += 1

    def work(slot: int) -> int:
        leased = workshop.lease(runner, slot)
        if leased is not None:
            at_work.answer(leased)
        return leased is not None

    def press(button: list[int]) -> int:
        """Pause and resume a few times, and see whether all is over."""
        if button[0] < PAUSES:
            button[0] += 1
            bisect.pause_bisect(ctx, ADA, asked[0].id)
            bisect.resume_bisect(ctx, ADA, asked[0].id)
        elif all(is_final(BISECT, one.state) for one in bisect.list_bisects(ctx)):
            ended.set()
        return 1

    presses = [0]
    tasks: list[tuple[str, Callable[[], int]]] = [
        ("planner 1", lambda: plan.plan(ctx)),
        ("planner 2", lambda: plan.plan(ctx)),
        ("slot 0", lambda: work(0)),
        ("slot 1", lambda: work(1)),
        ("reaper", lambda: reap.reap(ctx)),
        ("person", lambda: press(presses)),
    ]
    with ThreadPoolExecutor(len(tasks)) as pool:
        for future in [pool.submit(repeat, *task) for task in tasks]:
            try:
                future.result(LIMIT_S * 2)
            except BaseException:
                ended.set()
                raise
    for one in asked:
        check(at_work, one.id)
    print(dict(taken))


def check(at_work: Bisecting, bisect_id: str) -> None:
    """Every step is whole, none is there twice, and each can be decided again."""
    view = at_work.view(bisect_id)
    assert view.answer is Answer.CONFIRMED, view.sentence
    assert [step.number for step in view.steps] == list(range(1, len(view.steps) + 1))
    ordered = {order.block: order.builds for step in view.steps for order in step.orders}
    assert sum(len(step.orders) for step in view.steps) == len(ordered)
    jobs: dict[int, list[str]] = {}
    for job in view.jobs:
        jobs.setdefault(job.block, []).append(job.build.name)
    assert jobs == ordered
    assert {job.state for job in view.jobs} <= {JobState.DONE, JobState.CANCELLED}
    assert bisect.replay_steps(at_work.shop.ctx, bisect_id) == []
