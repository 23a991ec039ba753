"""Prompts are parsed and hashed in a process of their own, so that 330 kB of JSON never delay a token.

`PromptWorker` is the engine's side, `main` the worker's. They speak over a socket pair: a frame is length (4 bytes),
job number (4) and operation (1), then the body; an answer is length, job number and a pickle. The worker ends when its
parent does, however that dies: the kernel kills it (PR_SET_PDEATHSIG), and the socket's end ends its loop.
"""

import asyncio
import ctypes
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from images.simulated.requests import Limits, Plan, Reply, detokenize, plan_completion, tokenize

COMPLETION, TOKENIZE, DETOKENIZE = 1, 2, 3
_QUESTION = struct.Struct("<IIB")
_ANSWER = struct.Struct("<II")
_PR_SET_PDEATHSIG = 1
_STOP_S = 2.0


class WorkerDied(RuntimeError):
    """The worker process ended although nobody stopped it; the engine can't go on."""


class PromptWorker:
    """One worker process. Used from the event loop that called start(); start() must run on the main thread, because
    the kernel ties the worker's life to the thread that started it.
    """

    def __init__(self, limits: Limits, on_death: Callable[[], None]) -> None:
        self._limits = limits
        self._on_death = on_death
        self._jobs: dict[int, asyncio.Future[Plan | Reply]] = {}
        self._next_job = 0
        self._stopping = False
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def start(self) -> None:
        """Start the process and wait until it answers."""
        ours, theirs = socket.socketpair()
        root = str(Path(__file__).resolve().parents[2])
        paths = [root, os.environ.get("PYTHONPATH", "")]
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in paths if path))
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "images.simulated.worker", str(theirs.fileno()), str(os.getpid())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                env=environment,
            )
        reader, self._writer = await asyncio.open_connection(sock=ours)
        limits = pickle.dumps(self._limits)
        self._writer.write(_ANSWER.pack(len(limits), 0) + limits)
        self._reading = asyncio.create_task(self._read(reader))
        await self.ask(TOKENIZE, b'{"prompt":""}')

    async def ask(self, operation: int, body: bytes) -> Plan | Reply:
        """Have the worker do one operation on a request's body. Raises WorkerDied."""
        if self._writer is None or self._stopping:
            raise WorkerDied("the prompt worker is not running")
        self._next_job = self._next_job % 0xFFFFFFFF + 1
        job = self._next_job
        answer = asyncio.get_running_loop().create_future()
        self._jobs[job] = answer
        self._writer.write(_QUESTION.pack(len(body), job, operation))
        self._writer.write(body)
        result: Plan | Reply = await answer
        return result

    async def stop(self) -> None:
        """End the worker and wait until it is gone."""
        self._stopping = True
        if self._reading is not None:
            self._reading.cancel()
        if self._writer is not None:
            self._writer.close()
        self._fail_jobs()
        if self._process is not None:
            try:
                await asyncio.to_thread(self._process.wait, _STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                await asyncio.to_thread(self._process.wait)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                size, job = _ANSWER.unpack(await reader.readexactly(_ANSWER.size))
                answer = self._jobs.pop(job)
                result = pickle.loads(await reader.readexactly(size))
                if not answer.done():
                    answer.set_result(result)
        except (asyncio.IncompleteReadError, OSError):
            if not self._stopping:
                self._stopping = True
                self._fail_jobs()
                self._on_death()

    def _fail_jobs(self) -> None:
        for answer in self._jobs.values():
            if not answer.done():
                answer.set_exception(WorkerDied("the prompt worker died"))
        self._jobs.clear()


def _die_with_parent(parent: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        # The parent died before the kernel was asked to watch it.
        raise SystemExit(0)


def _answer(operation: int, body: bytes, limits: Limits) -> Plan | Reply:
    if operation == COMPLETION:
        return plan_completion(body, limits)
    if operation == TOKENIZE:
        return tokenize(body, limits)
    return detokenize(body, limits)


def _receive(stream: socket.socket, size: int) -> bytes:
    content = bytearray(size)
    view = memoryview(content)
    done = 0
    while done < size:
        count = stream.recv_into(view[done:])
        if count == 0:
            raise EOFError
        done += count
    return bytes(content)


def main(argv: list[str]) -> int:
    """The worker: answers until the socket ends. A signal to the whole group is left to the parent, which ends us."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _die_with_parent(int(argv[1]))
    with socket.socket(fileno=int(argv[0])) as stream:
        try:
            size, _ = _ANSWER.unpack(_receive(stream, _ANSWER.size))
            limits: Limits = pickle.loads(_receive(stream, size))
            while True:
                size, job, operation = _QUESTION.unpack(_receive(stream, _QUESTION.size))
                answer = pickle.dumps(_answer(operation, _receive(stream, size), limits), pickle.HIGHEST_PROTOCOL)
                stream.sendall(_ANSWER.pack(len(answer), job) + answer)
        except (EOFError, ConnectionError):
            return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
