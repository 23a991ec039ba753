"""What the load generator is told, and what it leaves behind."""

from typing import Literal

from pydantic import Field

from service.contract.builds import Sha256, Wire
from service.contract.failures import Failure
from service.contract.recipes import Seconds
from service.contract.upload import ArtifactRef, RepetitionReport, ServerCounters
from service.contract.workloads import Workload

REPORT_NAME = "load.json"
STEP = "load"


class LoadPlan(Wire):
    """One server, one workload: prime, warm up, measure.

    ``prompts_path`` is a file made by prompts.prepare for this workload. What is measured is written to ``out_dir`` as
    each phase ends. ``stall_s`` must be longer than the longest wait for a first token that is still healthy.
    """

    host: str = "127.0.0.1"
    port: int = Field(ge=1, le=65535)
    served_model_name: str = Field(min_length=1, max_length=300)
    workload: Workload
    prompts_path: str
    out_dir: str
    deadline_s: Seconds
    stall_s: Seconds = 120


class LoadProgress(Wire):
    """How far the load is; ``repetition`` is 0 before the first measured one."""

    phase: Literal["prime", "warm", "measure"]
    repetition: int
    of: int
    requests_done: int
    requests: int


class RepetitionFile(Wire):
    """One finished repetition."""

    number: int = Field(ge=1)
    log: ArtifactRef
    counters: ServerCounters


class LoadReport(Wire):
    """``load.json``: everything that is finished, rewritten atomically as each phase ends."""

    prompts: Sha256
    warm: ArtifactRef | None = None
    repetitions: list[RepetitionFile] = []


class LoadResult(Wire):
    """How a load ended: what is finished, and the failure that ended it early, if one did."""

    report: LoadReport
    failure: Failure | None = None

    @property
    def repetitions(self) -> list[RepetitionReport]:
        """The finished repetitions as a launch report has them."""
        return [
            RepetitionReport(number=r.number, raw_log=r.log.sha256, counters=r.counters)
            for r in self.report.repetitions
        ]

    @property
    def artifacts(self) -> list[ArtifactRef]:
        """Every raw log that was written, by its name in ``out_dir``."""
        warm = [self.report.warm] if self.report.warm else []
        return [*warm, *(r.log for r in self.report.repetitions)]
