"""Renewal: what it says, when it says it, and that nothing in the event loop can starve it."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from runners.clock import SystemClock
from runners.controller import Retry, Unreachable
from runners.lease import Activity, LeaseSignal, Renewer
from service.contract import errors
from service.contract.lease import AttemptState, Directive, Lease, Renewal, RenewalAnswer

LIMIT_S = 60.0
MakeLease = Callable[..., Lease]


class Scripted:
    """A controller that answers by a script, then continues; everything is counted."""

    def __init__(self, *script: Directive | Exception) -> None:
        self._script = list(script)
        self.renewals: list[Renewal] = []
        self.changed = threading.Condition()
        self.closed = False

    def renew(self, renewal: Renewal) -> RenewalAnswer:
        with self.changed:
            self.renewals.append(renewal)
            self.changed.notify_all()
            step = self._script.pop(0) if self._script else Directive.CONTINUE
        if isinstance(step, Exception):
            raise step
        return RenewalAnswer(directive=step)

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def until(self, happens: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(happens, LIMIT_S)


class Signals:
    """What the renewer signalled."""

    def __init__(self) -> None:
        self.seen: list[LeaseSignal] = []
        self._changed = threading.Condition()

    def __call__(self, signal: LeaseSignal) -> None:
        with self._changed:
            self.seen.append(signal)
            self._changed.notify_all()

    def until(self, signal: LeaseSignal) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: signal in self.seen, LIMIT_S), self.seen


@pytest.fixture
def lease(make_lease: MakeLease) -> Lease:
    return make_lease(ttl_s=30.0, renew_s=0.02)


def _renewer(lease: Lease, client: Any, signals: Signals, clock: Any = None) -> Renewer:
    return Renewer(lease, client, clock or SystemClock(), signals, Retry(0.01, 0.02))


def test_the_first_success_is_signalled_once_and_renewals_go_on(lease: Lease) -> None:
    client, signals = Scripted(), Signals()
    renewer = _renewer(lease, client, signals)
    renewer.start()
    client.until(lambda: len(client.renewals) > 5)
    renewer.stop()
    assert signals.seen == [LeaseSignal.HELD]
    assert client.closed
    assert {renewal.fence for renewal in client.renewals} == {lease.fence}


def test_renewals_go_on_while_the_event_loop_is_blocked(lease: Lease) -> None:
    client, signals = Scripted(), Signals()
    renewer = _renewer(lease, client, signals)

    async def blocked() -> int:
        renewer.start()
        before = len(client.renewals)
        client.until(lambda: len(client.renewals) >= before + 10)  # the loop does nothing else meanwhile
        return len(client.renewals) - before

    assert asyncio.run(blocked()) >= 10
    renewer.stop()


@pytest.mark.parametrize(
    ("answer", "signal", "ends"),
    [
        (Directive.CANCEL, LeaseSignal.CANCEL, True),
        (Directive.LOST, LeaseSignal.LOST, True),
        (errors.LeaseLost(), LeaseSignal.LOST, True),
        (errors.TokenInvalid(), LeaseSignal.REFUSED, True),
        (Directive.DRAIN, LeaseSignal.DRAIN, False),
    ],
)
def test_a_directive_becomes_a_signal(
    lease: Lease, answer: Directive | Exception, signal: LeaseSignal, ends: bool
) -> None:
    client, signals = Scripted(Directive.CONTINUE, answer), Signals()
    renewer = _renewer(lease, client, signals)
    renewer.start()
    signals.until(signal)
    if ends:
        client.until(lambda: client.closed)
        assert len(client.renewals) == 2, "nothing is renewed after the end"
    else:
        client.until(lambda: len(client.renewals) > 4)
    renewer.stop()


def test_nothing_is_sent_after_stop(lease: Lease) -> None:
    client, signals = Scripted(), Signals()
    renewer = _renewer(lease, client, signals)
    renewer.start()
    client.until(lambda: len(client.renewals) > 0)
    renewer.stop()
    sent = len(client.renewals)
    renewer.tell(Activity(AttemptState.MEASURING, "late"))
    renewer.stop()
    assert len(client.renewals) == sent
    assert client.closed


def test_a_renewer_that_was_never_started_stops_and_closes_its_client(lease: Lease) -> None:
    client = Scripted()
    _renewer(lease, client, Signals()).stop()
    assert client.closed


def test_trouble_is_bridged_without_a_signal(lease: Lease) -> None:
    client, signals = Scripted(*[Unreachable("away")] * 5), Signals()
    renewer = _renewer(lease, client, signals)
    renewer.start()
    signals.until(LeaseSignal.HELD)
    renewer.stop()
    assert signals.seen == [LeaseSignal.HELD]
    assert len(client.renewals) >= 6


class ManualClock(SystemClock):
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.s = 0.0

    def monotonic_s(self) -> float:
        return self.s


def test_a_whole_lease_without_a_renewal_is_signalled_as_expired_and_not_before(lease: Lease) -> None:
    clock, signals = ManualClock(), Signals()

    class Away(Scripted):
        def renew(self, renewal: Renewal) -> RenewalAnswer:
            clock.s += 10.0
            return super().renew(renewal)

    client = Away(Directive.CONTINUE, *[Unreachable("away")] * 100)
    renewer = _renewer(lease, client, signals, clock)
    renewer._pause = lambda failures: None  # type: ignore[method-assign]  # time is the test's
    renewer.start()
    signals.until(LeaseSignal.EXPIRED)
    renewer.stop()
    assert signals.seen == [LeaseSignal.HELD, LeaseSignal.EXPIRED]
    # The success was asked for at 0 s and holds 30 s; the tries end at 20, 30, ... s: the second failure is too late.
    with client.changed:
        assert len(client.renewals) >= 3


def test_a_change_of_state_is_told_at_once(make_lease: MakeLease) -> None:
    lease = make_lease(ttl_s=6 * LIMIT_S, renew_s=2 * LIMIT_S)
    client, signals = Scripted(), Signals()
    renewer = _renewer(lease, client, signals)
    renewer.start()
    signals.until(LeaseSignal.HELD)
    renewer.tell(Activity(AttemptState.PREPARING, "prepare"))
    client.until(lambda: len(client.renewals) >= 2)  # long before the next renewal is due
    renewer.stop()
    assert client.renewals[1].state is AttemptState.PREPARING


def test_what_is_too_long_for_the_wire_is_cut(lease: Lease) -> None:
    client, signals = Scripted(), Signals()
    renewer = _renewer(lease, client, signals)
    renewer.tell(Activity(AttemptState.LEASED, "s" * 100, "d" * 10_000, 0.5))
    renewer.start()
    signals.until(LeaseSignal.HELD)
    renewer.stop()
    assert (len(client.renewals[0].step), len(client.renewals[0].detail)) == (40, 500)
