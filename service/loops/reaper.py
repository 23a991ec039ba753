"""When leases are checked: every ``reap_every_s``, for as long as the controller runs."""

import asyncio
import logging

from service.actions import reap
from service.actions.context import Context
from service.contract.errors import BackslideError

_log = logging.getLogger("backslide.reaper")


async def run(ctx: Context, stopping: asyncio.Event) -> None:
    """Call the reap action again and again until ``stopping`` is set; a round that fails is logged, and the next one
    comes as planned. Returns after the round in progress."""
    while not stopping.is_set():
        try:
            changed = await asyncio.to_thread(reap.reap, ctx)
            if changed:
                _log.info("reaped %d", changed)
        except BackslideError as error:
            _log.error(
                "a round of the reaper failed: %s [%s]; again in %.1f s", error, error.code, ctx.settings.reap_every_s
            )
        except Exception as error:  # noqa: BLE001
            # The loop must outlive any one round: without it no lease ever expires.
            _log.error("a round of the reaper failed; next in %.1f s", ctx.settings.reap_every_s, exc_info=error)
        try:
            await asyncio.wait_for(stopping.wait(), ctx.settings.reap_every_s)
        except TimeoutError:
            continue
