"""Who sends when: a closed loop of fixed concurrency, one connection per slot, all open before the clock starts.

A request is sent once. A connection that was found closed is opened again, once, before the first byte is sent.
"""

import asyncio
import contextlib
import gc
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from runners.load.record import Ticket
from runners.load.wire import Connection, Ending, Exchange, NowNs, connect
from service.ruler.rawlog import ClientFigures

SENTINEL_S = 0.01
HOPELESS_AFTER = 4
GIVEN_UP = "given up"
"""The detail of an exchange that was ended, or not begun, because of others."""


@dataclass(frozen=True)
class Target:
    """Where to send, how long a stream may be silent, and when (monotonic ns) all must be over."""

    host: str
    port: int
    stall_s: float
    deadline_ns: int
    now_ns: NowNs = time.monotonic_ns


@dataclass
class Shots:
    """What came of a phase: exchanges in the order of sending, and the client's own figures."""

    done: list[tuple[Ticket, Exchange]] = field(default_factory=list)
    client: ClientFigures = field(default_factory=ClientFigures)
    given_up: str = ""
    """Why the rest was not sent; empty if everything was."""


class Loop:
    """One phase: sends every ticket, at most ``concurrency`` at once, a new one as soon as one ends.

    Gives up, without sending the rest, when the server can't be reached, when the deadline passes, or when
    max(concurrency, HOPELESS_AFTER) requests in a row have failed.
    """

    def __init__(self, target: Target, concurrency: int, on_done: Callable[[int], None]) -> None:
        self._target = target
        self._concurrency = concurrency
        self._on_done = on_done
        self._slots: list[Connection | None] = []
        self._shots = Shots()
        self._turnarounds_ns: list[int] = []
        self._reconnects = 0
        self._failed_in_a_row = 0

    async def run(self, tickets: Sequence[Ticket]) -> Shots:
        """Send them and return what came of it; nothing that the server does raises."""
        if not await self._open(min(self._concurrency, len(tickets))):
            return self._shots
        lags: list[int] = []
        waiting = iter(tickets)
        cpu_s = time.process_time()
        with _quiet_memory():
            async with _background(_sentinel(self._target.now_ns, lags), self._watch()):
                await asyncio.gather(*(self._work(slot, waiting) for slot in range(len(self._slots))))
        self._shots.client = self._figures(lags, time.process_time() - cpu_s)
        for connection in self._slots:
            if connection is not None:
                await connection.close()
        self._shots.done.sort(key=lambda shot: shot[1].send_ns)
        return self._shots

    async def _open(self, count: int) -> bool:
        target = self._target
        try:
            for _ in range(count):
                self._slots.append(await connect(target.host, target.port, target.now_ns))
        except OSError as error:
            self._shots.given_up = f"the server can't be reached at {target.host}:{target.port}: {error}"
            return False
        return True

    async def _work(self, slot: int, waiting: Iterator[Ticket]) -> None:
        ended_ns = 0
        while not self._shots.given_up:
            ticket = next(waiting, None)
            if ticket is None:
                return
            exchange = await self._send(slot, ticket)
            if ended_ns and exchange.ending is not Ending.UNREACHABLE:
                self._turnarounds_ns.append(exchange.send_ns - ended_ns)
            ended_ns = exchange.end_ns
            self._shots.done.append((ticket, exchange))
            self._on_done(len(self._shots.done))
            self._heed(exchange)

    async def _send(self, slot: int, ticket: Ticket) -> Exchange:
        connection = self._slots[slot]
        if connection is None or not connection.usable:
            target = self._target
            self._reconnects += 1
            try:
                connection = self._slots[slot] = await connect(target.host, target.port, target.now_ns)
            except OSError as error:
                self._slots[slot] = None
                return _unsent(target.now_ns(), str(error))
        if self._shots.given_up:
            return _unsent(self._target.now_ns(), GIVEN_UP)
        return await connection.exchange(ticket.parts)

    def _heed(self, exchange: Exchange) -> None:
        self._failed_in_a_row = self._failed_in_a_row + 1 if looks_failed(exchange) else 0
        if exchange.ending is Ending.UNREACHABLE:
            self._give_up(f"the server is gone: {exchange.detail}", Ending.RESET)
        elif self._failed_in_a_row >= max(self._concurrency, HOPELESS_AFTER):
            self._give_up(f"{self._failed_in_a_row} requests in a row failed", Ending.RESET)

    def _give_up(self, why: str, ending: Ending) -> None:
        self._shots.given_up = self._shots.given_up or why
        for connection in self._slots:
            if connection is not None:
                connection.give_up(ending, GIVEN_UP)

    async def _watch(self) -> None:
        target = self._target
        stall_ns = int(target.stall_s * 1e9)
        pause_s = min(1.0, target.stall_s / 4)
        while True:
            left_s = (target.deadline_ns - target.now_ns()) / 1e9
            await asyncio.sleep(min(pause_s, left_s) if left_s > 0 else pause_s)
            now_ns = target.now_ns()
            if now_ns >= target.deadline_ns:
                self._give_up("the deadline passed", Ending.DEADLINE)
            for connection in self._slots:
                since_ns = connection.quiet_since_ns if connection is not None else None
                if connection is not None and since_ns is not None and now_ns - since_ns > stall_ns:
                    connection.give_up(Ending.STALLED, f"no byte for {target.stall_s:g} s")

    def _figures(self, lags_ns: Sequence[int], cpu_s: float) -> ClientFigures:
        lag_ms = np.array(lags_ns or [0]) / 1e6
        turnaround_ms = np.array(self._turnarounds_ns or [0]) / 1e6
        return ClientFigures(
            loop_lag_p50_ms=round(float(np.percentile(lag_ms, 50)), 3),
            loop_lag_p99_ms=round(float(np.percentile(lag_ms, 99)), 3),
            loop_lag_max_ms=round(float(lag_ms.max()), 3),
            turnaround_p99_ms=round(float(np.percentile(turnaround_ms, 99)), 3),
            cpu_s=round(cpu_s, 3),
            reconnects=self._reconnects,
        )


def looks_failed(exchange: Exchange) -> bool:
    """Return whether an exchange failed, as far as can be told without parsing it while the clock runs."""
    if exchange.ending not in (Ending.COMPLETE, Ending.CLOSED) or exchange.status != 200:
        return True
    tail = b"".join(data for _, data in exchange.reads[-3:])
    # Inside a JSON text a quote is escaped, so that generated text can't look like this key.
    return b'"error"' in tail or b"[DONE]" not in tail


def _unsent(now_ns: int, detail: str) -> Exchange:
    return Exchange(now_ns, now_ns, (), Ending.UNREACHABLE, 0, detail)


async def _sentinel(now_ns: NowNs, lags_ns: list[int]) -> None:
    """Record how late a timer of this loop fires: what a stamp may be late by."""
    while True:
        asked_ns = now_ns()
        await asyncio.sleep(SENTINEL_S)
        lags_ns.append(max(0, now_ns() - asked_ns - int(SENTINEL_S * 1e9)))


@contextlib.contextmanager
def _quiet_memory() -> Iterator[None]:
    """Keep the garbage collector out of the measured window; nothing made in it lives in cycles."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


@contextlib.asynccontextmanager
async def _background(*works: Coroutine[None, None, None]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
