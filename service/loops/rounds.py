"""When things are done: an action again and again, for as long as the controller runs."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from service.actions import plan, reap
from service.actions.context import Context
from service.contract.errors import BackslideError
from service.settings import Settings

_log = logging.getLogger("backslide.rounds")


@dataclass(frozen=True)
class Round:
    """An action that returns how much it changed, and the seconds between two of its rounds."""

    name: str
    action: Callable[[Context], int]
    every_s: float


def all_rounds(settings: Settings) -> list[Round]:
    """Return every loop of a controller: leases are checked, bisects take their next step."""
    return [
        Round("reaper", lambda ctx: reap.reap(ctx), settings.reap_every_s),
        Round("planner", lambda ctx: plan.plan(ctx), settings.plan_every_s),
    ]


async def run(ctx: Context, stopping: asyncio.Event, one: Round) -> None:
    """Call an action again and again until ``stopping`` is set; a round that fails is logged, and the next one comes as
    planned. Returns after the round in progress."""
    while not stopping.is_set():
        try:
            changed = await asyncio.to_thread(one.action, ctx)
            if changed:
                _log.info("%s: %d", one.name, changed)
        except BackslideError as error:
            _log.error("%s: a round failed: %s [%s]; again in %.1f s", one.name, error, error.code, one.every_s)
        except Exception as error:  # noqa: BLE001
            # A loop must outlive any one round: without it no lease ever expires, and no bisect goes on.
            _log.error("%s: a round failed; next in %.1f s", one.name, one.every_s, exc_info=error)
        try:
            await asyncio.wait_for(stopping.wait(), one.every_s)
        except TimeoutError:
            continue
