"""Taking a request back."""

from service.actions import outcomes
from service.actions.context import Caller, Context
from service.actions.requests import get_request
from service.actions.views import RequestView
from service.contract.errors import Conflict, NotFound
from service.domain.states import BisectState, RequestState
from service.store import bisects, guards, requests
from service.store.tables import RequestRow


def cancel_request(ctx: Context, caller: Caller, request_id: str) -> RequestView:
    """Cancel a request: jobs that have not begun end at once, runners hear of the others at their next renewal.

    That of a bisect ends the bisect. Cancelling it again changes nothing. What was measured stays. Raises NotFound, and
    Conflict for one that is done or failed.
    """
    now = ctx.clock.now()
    with ctx.store.write() as session:
        request = guards.locked(session, RequestRow, request_id)
        if request is None:
            raise NotFound(f"There is no request {request_id!r}.")
        if request.state in (RequestState.DONE, RequestState.FAILED):
            raise Conflict(f"The request has ended already: it is {request.state}.")
        if requests.flag_cancel(session, now, request_id, caller.name):
            bisect = bisects.of_request(session, request_id)
            if bisect is not None:
                bisects.end(session, now, bisect, BisectState.CANCELLED, f"cancelled by {caller.name}")
            outcomes.cancel_open_jobs(session, now, request_id)
            outcomes.settle(session, now, request)
    return get_request(ctx, request_id)
