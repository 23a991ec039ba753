"""One launch in the making: prepare → start → identify → load → evaluate → stop, and what it yields."""

import asyncio
import contextlib
import errno
import os
import secrets
import shutil
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from runners import steps
from runners.evaluate import examination
from runners.evaluate.examination import Examination, Examinee
from runners.evaluate.questions import find_questions, simulated_answers
from runners.journal import Journal
from runners.launch import readiness, simulated, wheel_server
from runners.launch.launchable import Launchable, LaunchError
from runners.launch.process import ServerProcess, minimal_environment
from runners.launch.sessions import TAG_ATTEMPT, TAG_RUNNER
from runners.load import prompts
from runners.load.plan import REPORT_NAME, LoadPlan, LoadProgress, LoadReport, LoadResult
from runners.settings import RunnerSettings
from runners.spool import describe
from runners.steps import StepFailed, StepRunner
from service.contract.builds import SimulatedSource
from service.contract.clock import Clock
from service.contract.failures import Failure, FailureClass
from service.contract.lease import EvaluationOrder, Lease
from service.contract.upload import ArtifactRef, Identity, LaunchReport, Scored, Unscored

T = TypeVar("T")
SERVER_LOG = "server.log"
SERVER_LOG_CAP_BYTES = 32 * 2**20
PROOF_PROMPT_TOKENS = 8
LOOK_S = 1.0
DEATH_S = 5.0
"""How long a load may take to notice that its server died, and a dying server to be seen dead."""
PORTS_TRIED = 3

Load = Callable[[LoadPlan, Callable[[LoadProgress], None]], Awaitable[LoadResult]]


def _is_out_of_room(log: str) -> bool:
    return os.strerror(errno.ENOSPC) in log or os.strerror(errno.EDQUOT) in log


@dataclass(frozen=True)
class Equipment:
    """What every launch of one runner is made with."""

    runner_id: str
    settings: RunnerSettings
    journal: Journal
    clock: Clock
    load: Load
    free_port: Callable[[], int]


@dataclass
class _Started:
    """A server that was started. ``set_env`` is what build, recipe and launcher set."""

    server: ServerProcess
    nonce: str
    port: int
    set_env: dict[str, str]
    began_s: float
    uptime_s: float = 0.0
    proof: readiness.Proof | None = None


@dataclass
class Measurement:
    """Makes one launch for one lease, all files in ``folder``."""

    lease: Lease
    equipment: Equipment
    folder: Path
    runner: StepRunner
    on_detail: Callable[[str], None]
    """May be called from any thread."""
    on_progress: Callable[[LoadProgress], None]
    servers: list[ServerProcess] = field(default_factory=list)
    """Every server that was started, running or not."""
    started: _Started | None = None
    _abandoned: threading.Event = field(default_factory=threading.Event)

    async def make(self) -> LaunchReport:
        """Return the launch. Raises StepFailed or Stopped; the server has ended in every case."""
        launchable, prompt_file = await self.runner.run(steps.PREPARE, self._prepare())
        try:
            started = await self._serve(launchable)
            result = await self.runner.run(steps.LOAD, self._load(started, prompt_file.path))
            evaluation = await self._evaluate(started)
        except StepFailed as failure:
            raise await self._told(failure) from failure
        finally:
            await self._stop()
        report = await asyncio.to_thread(self._report, started, result, prompt_file.sha256)
        return report.model_copy(update={"evaluation": evaluation})

    async def artifacts(self) -> list[ArtifactRef]:
        """Return every file worth keeping that is there: raw logs of what is finished, server log, step log."""
        return await asyncio.to_thread(self._artifacts)

    async def _prepare(self) -> tuple[Launchable, prompts.PromptFile]:
        settings = self.equipment.settings
        free_bytes = shutil.disk_usage(self.folder).free
        if free_bytes < settings.keep_free_bytes:
            raise LaunchError(
                FailureClass.DISK_FULL,
                f"{settings.state_dir} has {free_bytes / 1e9:.2f} GB free, and {settings.keep_free_bytes / 1e9:.2f} GB"
                " are kept free: make room, or set BACKSLIDE_RUNNER_KEEP_FREE_BYTES",
            )
        launchable = await self._in_thread(self._launchable)
        self.on_detail("preparing the prompts")
        return launchable, await self._in_thread(lambda: prompts.prepare(self.lease.workload, settings.prompts_dir))

    def _launchable(self) -> Launchable:
        source, equipment = self.lease.build.source, self.equipment
        if isinstance(source, SimulatedSource):
            answers = simulated_answers(equipment.settings)
            return simulated.prepare(self.lease, source, equipment.settings.profiles_dir, self.folder, answers)
        return wheel_server.prepare(
            self.lease, source, equipment.settings, equipment.clock, self.on_detail, self._abandoned
        )

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Run blocking work; when cancelled, tell it to stop and wait until it has."""
        future = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            self._abandoned.set()
            await asyncio.wait({future})
            raise

    async def _serve(self, launchable: Launchable) -> _Started:
        """Start and identify the server; on another port when the first was taken in the meantime."""
        for tries_left in reversed(range(PORTS_TRIED)):
            started = await self.runner.run(steps.START, self._start(launchable))
            try:
                started.proof = await self.runner.run(steps.IDENTIFY, self._identify(started, launchable))
            except StepFailed as failure:
                if tries_left and await self._port_was_taken(started, failure):
                    self.on_detail(f"port {started.port} was taken; trying another")
                    await self._stop()
                    continue
                raise
            return started
        raise AssertionError("the last try returns or raises")

    async def _start(self, launchable: Launchable) -> _Started:
        attempt_id, equipment = self.lease.attempt_id, self.equipment
        nonce, port = f"{attempt_id}-{secrets.token_hex(4)}", equipment.free_port()
        set_env = {**launchable.env, TAG_ATTEMPT: attempt_id, TAG_RUNNER: equipment.runner_id}
        equipment.journal.starting(attempt_id)
        server = await ServerProcess.start(
            launchable.command(nonce, port),
            {**minimal_environment(os.environ), **set_env},
            folder=self.folder,
            log=self.folder / SERVER_LOG,
            attempt_id=attempt_id,
            clock=equipment.clock,
        )
        self.servers.append(server)
        self.started = _Started(server, nonce, port, set_env, equipment.clock.monotonic_s())
        equipment.journal.spawned(attempt_id, server.session.leader, server.session.machine_boot_id)
        return self.started

    async def _identify(self, started: _Started, launchable: Launchable) -> readiness.Proof:
        watch = asyncio.ensure_future(self._watch_members(started.server))
        low, high = self.lease.workload.vocab_low, self.lease.workload.vocab_high
        try:
            return await readiness.prove(
                started.server,
                launchable,
                nonce=started.nonce,
                port=started.port,
                prompt=[low + i % (high - low) for i in range(PROOF_PROMPT_TOKENS)],
                on_progress=self.on_detail,
            )
        finally:
            await steps.end(watch)
            await self._note_members(started.server)

    async def _watch_members(self, server: ServerProcess) -> None:
        while True:
            await self._note_members(server)
            await asyncio.sleep(LOOK_S)

    async def _note_members(self, server: ServerProcess) -> None:
        if await server.look_around():
            self.equipment.journal.members(self.lease.attempt_id, server.session.members)

    async def _load(self, started: _Started, prompts_path: Path) -> LoadResult:
        plan = LoadPlan(
            port=started.port,
            served_model_name=started.nonce,
            workload=self.lease.workload,
            prompts_path=str(prompts_path),
            out_dir=str(self.folder),
            deadline_s=self.equipment.settings.load_limit_s,
            stall_s=self.equipment.settings.stall_s,
        )
        load = asyncio.ensure_future(self.equipment.load(plan, self.on_progress))
        ended = asyncio.ensure_future(started.server.ended())
        try:
            await asyncio.wait({load, ended}, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():  # what is finished is on the disk; the load gives up by itself, or is told to
                await asyncio.wait({load}, timeout=DEATH_S)
                raise StepFailed(FailureClass.SERVER_CRASH, steps.LOAD.name, "the server died under load")
            result = await load
            if result.failure is not None:
                raise StepFailed(result.failure.failure_class, steps.LOAD.name, result.failure.message)
            return result
        finally:
            await steps.end(load)
            await steps.end(ended)

    async def _evaluate(self, started: _Started) -> Scored | Unscored | None:
        """Ask the server, if that is wanted. Whatever goes wrong costs the score, never the launch."""
        if self.lease.evaluation is None:
            return None
        try:
            return await self.runner.run(steps.EVALUATE, self._examine(started, self.lease.evaluation))
        except StepFailed as failed:
            self.on_detail(f"no score: {failed.message}")
            failure = Failure(failure_class=failed.failure_class, step=failed.step, message=failed.message[:4000])
            return Unscored(failure=failure)

    async def _examine(self, started: _Started, order: EvaluationOrder) -> Scored:
        equipment = self.equipment
        is_simulated = isinstance(self.lease.build.source, SimulatedSource)
        questions = await asyncio.to_thread(find_questions, equipment.settings, is_simulated=is_simulated)
        examination = Examination(
            Examinee(started.port, started.nonce, self.lease.attempt_id, equipment.runner_id),
            order,
            questions,
            self.folder,
            equipment.settings,
            equipment.clock,
            self._examining,
            lambda done, of: self.on_detail(f"{done} of {of} questions"),
        )
        equipment.journal.starting(self.lease.attempt_id)
        asking = asyncio.ensure_future(examination.run())
        ended = asyncio.ensure_future(started.server.ended())
        try:
            await asyncio.wait({asking, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise StepFailed(FailureClass.SERVER_CRASH, steps.EVALUATE.name, "the server died while it was asked")
            return await asking
        finally:
            await steps.end(asking)
            await steps.end(ended)

    def _examining(self, process: ServerProcess) -> None:
        self.servers.append(process)
        session = process.session
        self.equipment.journal.spawned(self.lease.attempt_id, session.leader, session.machine_boot_id)

    async def _stop(self) -> None:
        """End the server. Raises StepFailed when something of it is left."""
        started, self.started = self.started, None
        if started is not None:
            started.uptime_s = self.equipment.clock.monotonic_s() - started.began_s
            grace_s = self.equipment.settings.stop_grace_s
            await self.runner.run(steps.STOP, started.server.stop(grace_s), stoppable=False)

    async def _told(self, failure: StepFailed) -> StepFailed:
        """Return the failure with the server's exit status and the last lines of its log."""
        if self.started is None:
            return failure
        server = self.started.server
        status = await self._exit_status(server)
        text = failure.message if status is None else f"{failure.message} (exit status {status})"
        if tail := server.tail():
            text = f"{text[:1500]}; its log ends:\n{tail[-2000:]}"
        # A server that died for want of room is no fault of its build.
        failure_class = FailureClass.DISK_FULL if _is_out_of_room(tail) else failure.failure_class
        return StepFailed(failure_class, failure.step, text)

    async def _exit_status(self, server: ServerProcess) -> int | None:
        """Return the exit status of a server that has ended, or ends in this moment; None when it lives."""
        try:
            return await asyncio.wait_for(server.ended(), LOOK_S)
        except TimeoutError:
            return None

    async def _port_was_taken(self, started: _Started, failure: StepFailed) -> bool:
        """Return whether our server ended, or is about to, because another one has its port."""
        if isinstance(failure.__cause__, readiness.ForeignServer):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(started.server.ended(), DEATH_S)
        if started.server.process.returncode is None:
            return False
        return "address already in use" in started.server.tail(40).lower()

    def _report(self, started: _Started, result: LoadResult, prompts_sha256: str) -> LaunchReport:
        proof, warm = started.proof, result.report.warm
        if proof is None or warm is None:
            raise AssertionError("a load that succeeded has a proven server and a warm-up log")
        return LaunchReport(
            identity=Identity(
                version=proof.version,
                served_model_name=started.nonce,
                pid=started.server.pid,
                command=list(started.server.command),
                env=started.set_env,
                server_log=describe(SERVER_LOG, self._capped_log()).sha256,
            ),
            prompts=prompts_sha256,
            block_size=proof.block_size,
            warm_log=warm.sha256,
            repetitions=result.repetitions,
            steps=list(self.runner.timings),
            uptime_s=max(0.0, started.uptime_s),
        )

    def _artifacts(self) -> list[ArtifactRef]:
        found: list[ArtifactRef] = []
        try:
            report = LoadReport.model_validate_json((self.folder / REPORT_NAME).read_bytes())
            found += LoadResult(report=report).artifacts
        except (OSError, ValueError):
            pass  # the load did not get so far
        if (self.folder / SERVER_LOG).exists():
            found.append(describe(SERVER_LOG, self._capped_log()))
        others = (simulated.STEP_LOG, *examination.ARTIFACTS)
        return found + [describe(name, self.folder / name) for name in others if (self.folder / name).exists()]

    def _capped_log(self) -> Path:
        """Return the server's log, its middle cut out if it is larger than a controller must take."""
        path = self.folder / SERVER_LOG
        size_bytes = path.stat().st_size
        if size_bytes > SERVER_LOG_CAP_BYTES:
            half = SERVER_LOG_CAP_BYTES // 2 - 100
            with path.open("rb") as file:
                head = file.read(half)
                file.seek(size_bytes - half)
                tail = file.read()
            path.write_bytes(head + f"\n[{size_bytes - 2 * half} bytes are cut out here]\n".encode() + tail)
        return path
