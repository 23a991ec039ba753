"""The load generator's process: ``python -m runners.load --plan plan.json --parent PID``.

Progress goes to stdout as JSON lines. Ends with status 0, or with 1 and one last line that holds the failure. It dies
with its parent.
"""

import argparse
import asyncio
import ctypes
import errno
import os
import signal
import sys
import time
import traceback
from pathlib import Path

import uvloop

from runners.load.plan import STEP, LoadPlan, LoadProgress
from runners.load.run import Load, LoadFailed
from service.contract.failures import Failure, FailureClass

PR_SET_PDEATHSIG = 1
MIN_INTERVAL_NS = 250_000_000


class Progress:
    """Writes at most four lines a second, and drops one rather than wait for a reader that does not read."""

    def __init__(self) -> None:
        self._last_ns = 0

    def __call__(self, progress: LoadProgress) -> None:
        now_ns = time.monotonic_ns()
        edge = progress.requests_done in (0, progress.requests)
        if not edge and now_ns - self._last_ns < MIN_INTERVAL_NS:
            return
        self._last_ns = now_ns
        os.set_blocking(1, False)
        try:
            os.write(1, progress.model_dump_json().encode() + b"\n")
        except BlockingIOError:
            return
        finally:
            os.set_blocking(1, True)


def main() -> int:
    """Carry out the plan; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m runners.load", description=__doc__)
    parser.add_argument("--plan", required=True, type=Path, help="a LoadPlan as JSON")
    parser.add_argument("--parent", type=int, help="end when this process is no longer the parent")
    options = parser.parse_args()
    if options.parent is not None:
        _die_with(options.parent)
    try:
        plan = LoadPlan.model_validate_json(options.plan.read_bytes())
        load = Load(plan, Progress(), time.monotonic_ns)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(load.run())
    except LoadFailed as failed:
        return _fail(failed.failure)
    except Exception as error:  # noqa: BLE001  the last line must say what it was
        traceback.print_exc()
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        failure_class = FailureClass.DISK_FULL if full else FailureClass.INTERNAL
        return _fail(Failure(failure_class=failure_class, step=STEP, message=f"{type(error).__name__}: {error}"[:4000]))
    return 0


def _fail(failure: Failure) -> int:
    sys.stdout.write(failure.model_dump_json() + "\n")
    sys.stdout.flush()
    return 1


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, also when that is by SIGKILL."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        raise SystemExit("the parent ended before the load began")


if __name__ == "__main__":
    raise SystemExit(main())
