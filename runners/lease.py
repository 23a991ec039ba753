"""Keeping a lease alive from a thread of its own, so that nothing in the event loop can starve it."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from runners.controller import Retry, Unreachable
from service.contract import errors
from service.contract.clock import Clock
from service.contract.lease import AttemptState, Directive, Lease, Renewal, RenewalAnswer

JOIN_S = 15.0
NEWS_S = 2.0
"""What an attempt does is told at most so often; a change of its state at once."""


class LeaseSignal(StrEnum):
    """What the renewal has to say to its attempt."""

    HELD = "held"
    """The first renewal succeeded: work may begin."""
    CANCEL = "cancel"
    DRAIN = "drain"
    LOST = "lost"
    """The controller says that the lease is gone."""
    EXPIRED = "expired"
    """No renewal succeeded for a whole lease: the controller may have given the attempt to somebody else."""
    REFUSED = "refused"
    """The controller refuses the renewal for another reason; ``Renewer.refusal`` says which."""


FINAL = frozenset({LeaseSignal.CANCEL, LeaseSignal.LOST, LeaseSignal.REFUSED})


class Renews(Protocol):
    """One renewal: an answer, or Unreachable, or a BackslideError."""

    def renew(self, renewal: Renewal) -> RenewalAnswer: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Activity:
    """What the attempt is doing, as the next renewal tells it."""

    state: AttemptState = AttemptState.LEASED
    step: str = "lease"
    detail: str = ""
    progress: float | None = None


class Renewer:
    """Renews one lease every ``renew_s`` until stopped. ``on_signal`` is called from the thread."""

    def __init__(
        self,
        lease: Lease,
        client: Renews,
        clock: Clock,
        on_signal: Callable[[LeaseSignal], None],
        retry: Retry | None = None,
    ) -> None:
        self._lease = lease
        self._client = client
        self._clock = clock
        self._on_signal = on_signal
        self._retry = retry or Retry(first_s=0.2, cap_s=lease.renew_s)
        self._activity = Activity()
        self._told: Activity | None = None
        self._wake = threading.Condition()
        self._stopped = False
        self._held_until_s = clock.monotonic_s() + lease.ttl_s
        self._thread = threading.Thread(target=self._run, name=f"renew-{lease.attempt_id}", daemon=True)
        self.refusal = ""

    def start(self) -> None:
        self._thread.start()

    def tell(self, activity: Activity) -> None:
        """Say what the attempt does now; goes out with the next renewal, which a change of state brings on."""
        with self._wake:
            self._activity = activity
            self._wake.notify()

    def stop(self) -> None:
        """Send no further renewal. Blocks until one under way is answered, at most 15 s."""
        with self._wake:
            self._stopped = True
            self._wake.notify()
        if self._thread.ident is None:
            self._client.close()
        else:
            self._thread.join(JOIN_S)

    def _run(self) -> None:
        sent: set[LeaseSignal] = set()
        failures = 0
        try:
            while not self._is_stopped():
                signals, failures = self._renew_once(failures)
                for signal in signals:
                    if signal not in sent:
                        sent.add(signal)
                        self._on_signal(signal)
                if FINAL & sent:
                    return
                self._pause(failures)
        finally:
            self._client.close()

    def _renew_once(self, failures: int) -> tuple[list[LeaseSignal], int]:
        """Return what the answer means, and how many tries in a row failed."""
        activity = self._activity
        began_s = self._clock.monotonic_s()
        renewal = Renewal(
            fence=self._lease.fence,
            state=activity.state,
            step=activity.step[:40],
            detail=activity.detail[:500],
            progress=activity.progress,
        )
        try:
            answer = self._client.renew(renewal)
        except Unreachable:
            expired = self._clock.monotonic_s() >= self._held_until_s
            return ([LeaseSignal.EXPIRED] if expired else []), failures + 1
        except errors.LeaseLost:
            return [LeaseSignal.LOST], 0
        except errors.BackslideError as error:
            self.refusal = f"{error.code}: {error.message}"
            return [LeaseSignal.REFUSED], 0
        self._told = activity
        self._held_until_s = began_s + self._lease.ttl_s  # counted from before the controller did
        return [LeaseSignal.HELD, *_directed(answer.directive)], 0

    def _pause(self, failures: int) -> None:
        """Wait for the next renewal: ``renew_s``, less after a failure or when there is news."""
        began_s = self._clock.monotonic_s()
        pause_s = self._lease.renew_s if failures == 0 else self._retry.pause_s(failures)
        if failures:  # the moment of expiry is told when it comes
            left_s = self._held_until_s - began_s
            pause_s = min(pause_s, left_s) if left_s > 0 else pause_s
        with self._wake:
            while not self._stopped:
                now_s = self._clock.monotonic_s()
                left_s = began_s + self._news_s(pause_s, failures) - now_s
                if left_s <= 0:
                    return
                self._wake.wait(left_s)

    def _news_s(self, pause_s: float, failures: int) -> float:
        """Return the pause, shortened when there is something to tell."""
        told, now = self._told, self._activity
        if failures or told is None or told == now:
            return pause_s
        return 0.0 if told.state != now.state else min(pause_s, NEWS_S)

    def _is_stopped(self) -> bool:
        with self._wake:
            return self._stopped


def _directed(directive: Directive) -> list[LeaseSignal]:
    return {
        Directive.CONTINUE: [],
        Directive.CANCEL: [LeaseSignal.CANCEL],
        Directive.DRAIN: [LeaseSignal.DRAIN],
        Directive.LOST: [LeaseSignal.LOST],
    }[directive]
