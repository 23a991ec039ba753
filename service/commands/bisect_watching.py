"""Following a bisect live: a picture that changes in a terminal, one line per change elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.text import Text

from service.commands import bisect_showing as showing
from service.commands import watching
from service.commands.client import Client
from service.commands.output import console, make_table, plain, print_line
from service.contract.clock import Clock

_BAR_WIDTH = 24
_LATEST = 3
"""Decisions that the live picture shows."""


class BisectWatch:
    """A bisect as it is now."""

    def __init__(self, client: Client, bisect_id: str, clock: Clock) -> None:
        self.client = client
        self.clock = clock
        self.view: dict[str, Any] = client.get(f"bisects/{bisect_id}")
        self._after = 0
        self._rounds = 0

    @property
    def open(self) -> bool:
        return showing.is_open(self.view)

    def update(self) -> bool:
        """Ask for news; return whether the view was read again. Raises Unreachable and Refused."""
        self._rounds += 1
        news = self.client.get("events", after=self._after, request=self.view["request_id"], limit=1000)
        if not news and self._rounds % watching.REFRESH_EVERY:
            return False
        self.view = self.client.get(f"bisects/{self.view['id']}")
        if news:
            self._after = news[-1]["id"]
        return True


def follow(watch: BisectWatch, say: Callable[[str], None] = print_line) -> dict[str, Any]:
    """Show a bisect until it ends, and return it. Raises Unreachable when the controller stays away."""
    say(showing.headline(watch.view))
    show = _picture if console().is_terminal else _lines
    with show(watch, say) as changed:
        for _ in watching.rounds(watch, say):
            changed()
    return watch.view


def wait(watch: BisectWatch) -> dict[str, Any]:
    """Wait in silence for a bisect's end, and return it. Raises as ``follow`` does."""
    for _ in watching.rounds(watch, lambda _text: None):
        pass
    return watch.view


@contextmanager
def _picture(watch: BisectWatch, _say: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    with Live(console=console(), refresh_per_second=4) as live:
        yield lambda: live.update(picture(watch.view))


def picture(view: dict[str, Any]) -> Group:
    """Return the live picture: every version with what it measured and does, the posterior as bars between them, the
    newest decisions, and what is left."""
    steps = {one["last_good"]: one["probability"] for one in (view["picture"] or {"steps": []})["steps"]}
    doing = _doing(view)
    columns = ("version", "launches>", f"{view['label']} {view['unit']}>", "now", "P(the step follows it)")
    rows = [
        [
            one["name"],
            one["launches"],
            one["value"],
            "could not be measured" if one["broken"] else doing.get(one["build"]["id"], ""),
            _wide_bar(steps.get(one["name"])),
        ]
        for one in view["lineup"]
    ]
    none = view["picture"]["none"] if view["picture"] else None
    lines = [f"P(no change) {_wide_bar(none)}"] if none is not None else []
    for step in view["steps"][-_LATEST:]:
        lines.append(f"step {step['number']}: {step['reason']}")
        lines += [f"    {line}" for line in showing.order_lines(step)]
    lines.append(f"{showing.state_of(view)}; {view['launches_done']} launches, {showing.left(view)}")
    return Group(make_table(columns, rows), *(Text(plain(line)) for line in lines))


@contextmanager
def _lines(watch: BisectWatch, say: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    seen: set[tuple[Any, ...]] = set()
    began = watch.clock.monotonic_s()

    def changed() -> None:
        for key, text in _news(watch.view):
            if key not in seen:
                seen.add(key)
                say(f"{watch.clock.monotonic_s() - began:6.0f} s  {text}")

    yield changed


def _news(view: dict[str, Any]) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield everything worth a line, each with a key by which it is known: launches that ended, decisions, launches
    that began, failures, and changes of state."""
    for _, key, text in sorted([*_launches(view), *_decisions(view)], key=lambda one: one[0]):
        yield key, text
    for job in view["jobs"]:
        attempt = job["attempt"]
        if attempt and job["state"] == "active":
            yield ("began", attempt["id"]), f"{job['build']['name']} starts on {_slot(attempt)}"
        if attempt and attempt["failure"]:
            yield (
                ("failed", attempt["id"]),
                f"{job['build']['name']} on {_slot(attempt)}: {_failure(attempt['failure'])}",
            )
    state = showing.state_of(view)
    yield ("state", state, view["paused"]), f"{state}; {showing.left(view)}" if showing.is_open(view) else state


def _launches(view: dict[str, Any]) -> Iterator[tuple[str, tuple[Any, ...], str]]:
    for one in view["lineup"]:
        for point in one["points"]:
            value = f"{view['label']} {point['value']:.4g} {view['unit']}" if point["value"] is not None else ""
            found = value.strip() or f"no value: {point['unused_because']}"
            yield point["at"], ("ended", point["launch_id"]), f"{one['name']} ({point['phase']}): {found}"
        if one["broken"]:
            why = f"{one['name']} could not be measured and is skipped: {one['why']}"
            yield view["created_at"], ("broken", one["index"]), why


def _decisions(view: dict[str, Any]) -> Iterator[tuple[str, tuple[Any, ...], str]]:
    """A decision that only waits, and sees what the one before it saw, is worth no line."""
    before: dict[str, Any] | None = None
    for step in view["steps"]:
        at, number = step["at"], step["number"]
        bars = showing.sparkline(step["picture"])
        if before is None or step["orders"] or step["phase"] is None or step["reason"] != before["reason"]:
            yield at, ("step", number), f"step {number}: {step['reason']}"
        for index, line in enumerate(showing.order_lines(step)):
            yield at, ("order", number, index), f"    ordered {line}"
        if before is None or bars != showing.sparkline(before["picture"]):
            yield at, ("posterior", number), f"    posterior {bars}  {showing.posterior(step['picture'])}"
        before = step


def _doing(view: dict[str, Any]) -> dict[str, str]:
    found = {}
    for job in view["jobs"]:
        attempt = job["attempt"]
        if attempt and job["state"] == "active":
            progress = "" if attempt["progress"] is None else f" {attempt['progress']:.0%}"
            found[job["build"]["id"]] = f"{_slot(attempt)} {attempt['step'] or attempt['state']}{progress}"
    return found


def _slot(attempt: dict[str, Any]) -> str:
    return f"{attempt['runner_name']}/{attempt['slot_index']}"


def _failure(failure: dict[str, Any]) -> str:
    return f"{failure['failure_class']} in {failure['step']}: {failure['message'][:200]}"


def _wide_bar(value: float | None) -> str:
    return "" if value is None else f"{'█' * round(value * _BAR_WIDTH):<{_BAR_WIDTH}} {showing.probability(value)}"
