"""Process trees: started clean, ended whole."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from runners.clock import SystemClock
from runners.launch.launchable import LaunchError
from runners.launch.process import ServerProcess, minimal_environment
from runners.launch.sessions import TAG_ATTEMPT, find, look_up, members_of, send
from service.contract.failures import FailureClass

STUBBORN = """
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited by the child
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = "import signal; print('up', flush=True); signal.pause()"
subprocess.Popen([sys.executable, "-c", child], env={}).wait()
"""
HIDING = """
import signal, subprocess, sys
child = "import signal; print('up', flush=True); signal.pause()"
subprocess.Popen([sys.executable, "-c", child], start_new_session=True)
signal.pause()
"""


def _run(folder: Path, program: str, work: Callable[[ServerProcess], Awaitable[None]]) -> None:
    """Run ``work`` once the program has said that it is up."""

    async def body() -> None:
        server = await ServerProcess.start(
            [sys.executable, "-c", program],
            {TAG_ATTEMPT: "att_test"},
            folder=folder,
            log=folder / "server.log",
            attempt_id="att_test",
            clock=SystemClock(),
        )
        try:
            async with asyncio.timeout(60):
                while "up" not in server.tail():
                    await asyncio.sleep(0)
            await work(server)
        finally:
            await server.stop(0)

    asyncio.run(body())


def test_stopping_ends_members_that_ignore_every_polite_signal(tmp_path: Path) -> None:
    async def work(server: ServerProcess) -> None:
        members = members_of(server.session.leader)
        assert len(members) == 2
        await server.stop(0)
        assert [one for one in members if look_up(one.pid) is not None] == []
        assert server.process.returncode is not None

    _run(tmp_path, STUBBORN, work)


def test_stopping_ends_what_left_the_session_but_carries_the_tag(tmp_path: Path) -> None:
    async def work(server: ServerProcess) -> None:
        tagged = find([], (TAG_ATTEMPT, "att_test"))
        assert len(tagged) == 2
        assert len(members_of(server.session.leader)) == 1
        await server.stop(5)
        assert find([], (TAG_ATTEMPT, "att_test")) == []

    _run(tmp_path, HIDING, work)


def test_members_of_a_leader_that_died_are_still_ended(tmp_path: Path) -> None:
    async def work(server: ServerProcess) -> None:
        assert await server.look_around()
        assert not await server.look_around(), "nothing new"
        server.process.kill()
        await server.ended()
        (orphan,) = find([server.session], None)
        await server.stop(0)
        assert look_up(orphan.pid) is None

    _run(tmp_path, STUBBORN, work)


def test_a_server_gets_only_what_it_needs_of_the_runners_environment(tmp_path: Path) -> None:
    environ = {"PATH": "/bin", "HOME": "/root", "BACKSLIDE_RUNNER_STATE_DIR": "/x", "SECRET_TOKEN": "y"}
    assert minimal_environment(environ) == {"PATH": "/bin", "HOME": "/root"}


def test_a_program_that_is_not_there_is_a_spec_that_can_never_work(tmp_path: Path) -> None:
    async def body() -> None:
        await ServerProcess.start(
            [str(tmp_path / "nothing")],
            {},
            folder=tmp_path,
            log=tmp_path / "log",
            attempt_id="att_1",
            clock=SystemClock(),
        )

    with pytest.raises(LaunchError) as caught:
        asyncio.run(body())
    assert caught.value.failure_class is FailureClass.SPEC_INVALID


def test_a_signal_never_reaches_a_process_that_has_the_pid_now(tmp_path: Path) -> None:
    async def work(server: ServerProcess) -> None:
        leader = server.session.leader
        send(type(leader)(leader.pid, leader.start_ticks + 1), 9)  # type: ignore[arg-type]
        assert look_up(leader.pid) is not None

    _run(tmp_path, STUBBORN, work)
