"""Following a bisect: a line for every launch and decision, patience with a controller that is away, and an end."""

from typing import Any, cast

import pytest
from rich.console import Console

from service.commands import bisect_showing, bisect_watching, watching
from service.commands.client import Client, Refused, Unreachable
from service.domain.bisect import Answer
from tests import bisected
from tests.service.api.things import StillClock

Step = dict[str, Any] | Exception


def view(answer: Answer | None = None, **changes: Any) -> dict[str, Any]:
    return bisected.view(answer, **changes).model_dump(mode="json")


class Script:
    """A controller that answers from a list: one entry per round; each round moves the clock by ten seconds."""

    def __init__(self, clock: StillClock, *steps: Step) -> None:
        self.clock = clock
        self.steps = list(steps)

    def get(self, path: str, **_: Any) -> Any:
        if path == "events":
            self.clock.move(10)
            self.steps.pop(0)
            if isinstance(self.steps[0], Exception):
                raise self.steps[0]
            return [{"id": 1}]
        return self.steps[0]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StillClock:
    monkeypatch.setattr(watching, "POLL_S", 0)
    return StillClock()


def follow(clock: StillClock, *steps: Step) -> list[str]:
    said: list[str] = []
    script = cast(Client, Script(clock, *steps))
    bisect_watching.follow(bisect_watching.BisectWatch(script, "bis_1", clock), said.append)
    return said


def early() -> dict[str, Any]:
    """The bisect after its first decision, before any launch has ended."""
    begun = view()
    for one in begun["lineup"]:
        one |= {"points": [], "launches": 0, "value": None}
    return {**begun, "steps": begun["steps"][:1]}


def test_each_decision_and_each_launch_is_said_once_in_the_order_of_time(clock: StillClock) -> None:
    said = follow(clock, early(), early(), view(), view(Answer.CONFIRMED))
    assert said[0].startswith("bis_0000000000000001: which of 12 versions from v0.18.0 to v0.24.0 made TPOT p50 worse")
    assert said[0].endswith("(simulated, time compressed 4x)")
    for number in (1, 2, 3):
        assert sum(f"step {number}: Decision {number}" in line for line in said) == 1
    ended = [line for line in said if "TPOT p50" in line and " ms" in line and "): " in line]
    assert len(ended) == len(bisected.launches())
    assert sum("[0.97 bits]" in line for line in said) == 1
    assert said[-1].endswith("confirmed")


def test_the_posterior_is_drawn_with_one_bar_per_step_and_said_in_words(clock: StillClock) -> None:
    said = follow(clock, view(Answer.CONFIRMED))
    drawn = [line for line in said if "posterior" in line]
    assert len(drawn) == 3
    bars = drawn[-1].split("posterior ")[1].split()[0]
    assert bars == "·|·█·········"
    assert "v0.18.1 → v0.19.0 0.97" in drawn[-1]


def test_a_build_that_could_not_be_measured_is_said_with_why(clock: StillClock) -> None:
    said = follow(clock, view(Answer.CONFIRMED))
    (line,) = [line for line in said if "could not be measured" in line]
    assert "v0.20.2" in line
    assert "HIP error" in line


def test_a_controller_that_restarts_is_waited_for(clock: StillClock) -> None:
    away = Unreachable("gone")
    said = follow(clock, early(), away, away, view(Answer.CONFIRMED))
    assert sum("does not answer" in line for line in said) == 1
    assert said[-1].endswith("confirmed")


def test_a_controller_that_stays_away_ends_the_watch(clock: StillClock) -> None:
    with pytest.raises(Unreachable):
        follow(clock, early(), *[Unreachable("gone")] * 40)


def test_a_bisect_that_is_not_there_ends_the_watch_at_once(clock: StillClock) -> None:
    with pytest.raises(Refused):
        follow(clock, early(), Refused({"status": 404, "code": "not_found", "detail": "gone"}), view())


def test_the_live_picture_has_every_version_and_what_is_left() -> None:
    console = Console(width=160, record=True, color_system=None)
    with console.capture() as captured:
        console.print(bisect_watching.picture(view()))
    shown = captured.get()
    for name in bisected.NAMES:
        assert name in shown
    assert "████████" in shown
    assert "searching; 15 launches, left: about 9 launches (6 to 14), about 2 min" in shown


def test_the_log_has_every_decision_and_every_launch_by_time() -> None:
    log = list(bisect_showing.explain(view(Answer.CONFIRMED)))
    assert sum("STEP" in line for line in log) == 3
    assert sum("launched for" in line for line in log) == len(bisected.launches())
    times = [float(line.split(" s ")[0]) for line in log if " s  " in line[:12]]
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"paused": True}, "searching, paused"),
        ({"cancel_requested": True}, "searching, cancel asked"),
        ({"state": "cancelled"}, "cancelled"),
    ],
)
def test_the_state_says_what_was_asked_of_it(changes: dict[str, Any], expected: str) -> None:
    assert bisect_showing.state_of(view(**changes)) == expected
