"""Asking a running server: one process with lm-eval in a session of its own, watched, and ended with the attempt."""

import asyncio
import contextlib
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runners.evaluate import ask, task
from runners.evaluate.questions import EvaluationError, Questions
from runners.launch.process import ServerProcess, minimal_environment
from runners.launch.sessions import TAG_ATTEMPT, TAG_RUNNER
from runners.settings import RunnerSettings
from runners.spool import describe
from service.contract.clock import Clock
from service.contract.lease import EvaluationOrder
from service.contract.upload import Scored

SAMPLES, RESULTS, LOG = "gsm8k-samples.jsonl", "gsm8k-results.json", "gsm8k.log"
ARTIFACTS = (SAMPLES, RESULTS, LOG, task.FILE_NAME)
INSTALL = "pip install 'lm-eval[api]==0.4.13'"
LOOK_S = 1.0
NICENESS = 10
"""Other slots measure while this one is asked: they go first."""
_PROGRESS = re.compile(rb"Requesting API: +\d+%\|[^|]*\| (\d+)/(\d+)")
_FAILED = re.compile(
    r"API request failed! (Status code: \d+, Response text: .*?)\. Retrying|Exception:(.*?), \(no outputs\)"
)
_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1"}
_MODEST = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TQDM_MININTERVAL": "0.5", "PYTHONUNBUFFERED": "1"}


@dataclass(frozen=True)
class Examinee:
    """The server that is asked, and for whom."""

    port: int
    served_model_name: str
    attempt_id: str
    runner_id: str


@dataclass
class Examination:
    """One server, one set of questions; files in ``folder``. ``on_started`` is told the process before it does much."""

    examinee: Examinee
    order: EvaluationOrder
    questions: Questions
    folder: Path
    settings: RunnerSettings
    clock: Clock
    on_started: Callable[[ServerProcess], None]
    on_progress: Callable[[int, int], None]
    """Questions answered, questions in all."""
    _told: tuple[int, int] = field(default=(0, 0))

    async def run(self) -> Scored:
        """Return the report. Raises EvaluationError; the process has ended in every case."""
        began_s = self.clock.monotonic_s()
        questions, shots = await asyncio.to_thread(self.questions.hashes)
        process = await self._start()
        try:
            while not await self._has_ended(process):
                await asyncio.to_thread(self._tell_progress)
        finally:
            await process.stop(0)
        summary = await asyncio.to_thread(self._summary, process)
        if summary["failed"]:
            raise EvaluationError(f"{summary['failed']} of {summary['n']} requests were answered with nothing")
        self._tell(summary["n"], summary["n"])  # lm-eval's bar does not always get to its end
        return Scored(
            label=self.questions.label,
            questions=questions,
            shots=shots,
            n=summary["n"],
            samples=(await asyncio.to_thread(describe, SAMPLES, self.folder / SAMPLES)).sha256,
            lm_eval_version=summary["lm_eval_version"],
            duration_s=max(0.0, self.clock.monotonic_s() - began_s),
        )

    async def _start(self) -> ServerProcess:
        order = await asyncio.to_thread(self._write_order)
        # The tag is not the server's, which is to outlive this process; the runner's finds both.
        tag = f"{self.examinee.attempt_id}/evaluate"
        process = await ServerProcess.start(
            [str(self.settings.lm_eval_python or sys.executable), "-P", str(Path(ask.__file__).resolve()), str(order)],
            self._environment(tag),
            folder=self.folder,
            log=self.folder / LOG,
            attempt_id=tag,
            clock=self.clock,
        )
        self.on_started(process)
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
        return process

    def _environment(self, tag: str) -> Mapping[str, str]:
        cache = {"HF_HOME": str(self.folder / "gsm8k-cache")}
        tags = {TAG_ATTEMPT: tag, TAG_RUNNER: self.examinee.runner_id}
        return {**minimal_environment(os.environ), **_OFFLINE, **_MODEST, **cache, **tags}

    def _write_order(self) -> Path:
        folder = self.folder / "gsm8k-task"
        folder.mkdir(exist_ok=True)
        task.write_task(self.questions, folder)
        task.write_task(self.questions, self.folder)
        order = {
            "task_folder": str(folder),
            "task": task.NAME,
            "limit": self.order.limit,
            "samples": str(self.folder / SAMPLES),
            "results": str(self.folder / RESULTS),
            "model_args": self._model_args(),
        }
        path = self.folder / "gsm8k-order.json"
        path.write_text(json.dumps(order, indent=1), encoding="utf-8")
        return path

    def _model_args(self) -> dict[str, Any]:
        settings = self.settings
        return {
            "model": self.examinee.served_model_name,
            "base_url": f"http://127.0.0.1:{self.examinee.port}/v1/completions",
            "num_concurrent": settings.gsm8k_concurrency,
            "max_retries": settings.gsm8k_tries,
            "max_gen_toks": settings.gsm8k_max_gen_toks,
            "timeout": int(settings.evaluate_limit_s),
            "tokenizer_backend": "None",
            "tokenized_requests": False,
        }

    async def _has_ended(self, process: ServerProcess) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.ended(), LOOK_S)
        return process.process.returncode is not None

    def _tell_progress(self) -> None:
        found = _PROGRESS.findall((self.folder / LOG).read_bytes()[-4096:])
        if found:
            self._tell(int(found[-1][0]), int(found[-1][1]))

    def _tell(self, answered: int, asked: int) -> None:
        if (answered, asked) != self._told:
            self._told = (answered, asked)
            self.on_progress(answered, asked)

    def _summary(self, process: ServerProcess) -> dict[str, Any]:
        status = process.process.returncode
        if status == ask.NOT_INSTALLED:
            python = self.settings.lm_eval_python or sys.executable
            raise EvaluationError(f"lm-eval is not installed for {python}: {INSTALL}")
        if status != 0:
            raise EvaluationError(f"lm-eval ended with status {status}: {self._why()}")
        try:
            summary: dict[str, Any] = json.loads((self.folder / RESULTS).read_bytes())
        except (OSError, ValueError) as error:
            raise EvaluationError(f"lm-eval's results can't be read: {error}") from error
        return summary

    def _why(self) -> str:
        """What the first request that failed was answered, or else the last thing that lm-eval said.

        After the first failure it breaks all others off, so that the exception it ends with may be of any of them.
        """
        text = log_text(self.folder / LOG)
        failed = _FAILED.search(text)
        if failed is not None:
            return " ".join((failed[1] or failed[2]).split())[:1000]
        lines = [line for line in text.splitlines() if line[:1].strip()]
        return lines[-1][:1000] if lines else "it said nothing"


def log_text(path: Path) -> str:
    """Return a log's text, a line for each state of a progress bar; empty when there is no log."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").replace("\r", "\n")
    except OSError:
        return ""
