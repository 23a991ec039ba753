"""How the agent runs a load: a process of its own, so that nothing the agent does can disturb a stamp."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from runners.load.plan import REPORT_NAME, STEP, LoadPlan, LoadProgress, LoadReport, LoadResult
from runners.load.prompts import write_whole
from service.contract.failures import Failure, FailureClass

GRACE_S = 30.0
ERROR_LOG = "load.stderr.log"
MAX_LINE_BYTES = 64 << 10


async def run_load(plan: LoadPlan, on_progress: Callable[[LoadProgress], None]) -> LoadResult:
    """Carry out a plan in a process of its own and return what is finished, with the failure if it ended early.

    Works under any asyncio loop. When it is cancelled, the process is killed and waited for before the cancellation
    goes on; the phases that were finished stay in ``plan.out_dir``. A process that outlives its deadline is killed too.
    Raises OSError if the directory can't be written or the process not started.
    """
    out = Path(plan.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    (out / REPORT_NAME).unlink(missing_ok=True)
    write_whole(out / "plan.json", plan.model_dump_json(indent=1).encode())
    with (out / ERROR_LOG).open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *command(out / "plan.json"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=_environment(),
            limit=MAX_LINE_BYTES,
            start_new_session=True,  # Ctrl-C on the agent's terminal is the agent's to handle
        )
    try:
        async with asyncio.timeout(plan.deadline_s + GRACE_S):
            failure = await _follow(process, on_progress)
            status = await process.wait()
    except TimeoutError:
        process.kill()
        status, failure = await process.wait(), _overrun(plan)
    finally:
        if process.returncode is None:
            process.kill()
            await asyncio.shield(process.wait())
    if status != 0 and failure is None:
        failure = _unexplained(status, out / ERROR_LOG)
    return LoadResult(report=_read_report(out), failure=failure)


def command(plan_path: Path) -> list[str]:
    """Return the command line of the load generator's process."""
    # -P: a file in the working directory must not be able to shadow a module.
    return [sys.executable, "-P", "-m", "runners.load", "--plan", str(plan_path), "--parent", str(os.getpid())]


async def _follow(process: asyncio.subprocess.Process, on_progress: Callable[[LoadProgress], None]) -> Failure | None:
    assert process.stdout is not None
    failure = None
    while line := await process.stdout.readline():
        try:
            on_progress(LoadProgress.model_validate_json(line))
        except ValidationError:
            failure = Failure.model_validate_json(line)
    return failure


def _environment() -> dict[str, str]:
    # The child must find the same code, also where that is a source tree that only this process has on its path.
    root = str(Path(__file__).resolve().parents[2])
    inherited = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([root, inherited]) if inherited else root
    return {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def _read_report(out: Path) -> LoadReport:
    try:
        return LoadReport.model_validate_json((out / REPORT_NAME).read_bytes())
    except FileNotFoundError:
        return LoadReport(prompts="0" * 64)


def _overrun(plan: LoadPlan) -> Failure:
    message = f"the load generator did not end {GRACE_S:g} s after its deadline of {plan.deadline_s:g} s; it was killed"
    return Failure(failure_class=FailureClass.TIMEOUT_STEP, step=STEP, message=message)


def _unexplained(status: int, errors: Path) -> Failure:
    how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    tail = errors.read_bytes()[-2000:].decode(errors="replace").strip()
    message = f"the load generator {how} and said nothing" + (f"; its last lines: {tail}" if tail else "")
    return Failure(failure_class=FailureClass.INTERNAL, step=STEP, message=message)
