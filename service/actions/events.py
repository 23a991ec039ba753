"""Reading what happened."""

from service.actions.context import Context
from service.actions.pictures import event_view
from service.actions.views import EventView
from service.store import events


def list_events(ctx: Context, after: int = 0, request_id: str | None = None, limit: int = 200) -> list[EventView]:
    """Return up to ``limit`` (1 to 1000) events with ids above ``after``, oldest first; of one request if named.

    A reader that goes on from the last id it saw misses none.
    """
    with ctx.store.read() as session:
        return [event_view(row) for row in events.after(session, after, request_id, max(1, min(limit, 1000)))]
