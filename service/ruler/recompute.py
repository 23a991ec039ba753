"""From bytes to numbers: the one way in which a stored number comes to be."""

from service.contract.errors import InvalidInput
from service.contract.upload import ServerCounters
from service.contract.workloads import Workload
from service.ruler.metrics import Metrics, measure
from service.ruler.rawlog import RawLog, decode
from service.ruler.validity import Judgement, judge


def recompute(raw: bytes, workload: Workload, counters: ServerCounters, block_size: int) -> tuple[Metrics, Judgement]:
    """Return metrics and judgement of a raw log's bytes: equal bytes give equal results, on every machine.

    Raises InvalidInput for a damaged or foreign file and for a log of another workload, TooLarge for one beyond bounds.
    """
    log = read(raw, workload)
    return measure(log, workload), judge(log, workload, counters, block_size)


def read(raw: bytes, workload: Workload) -> RawLog:
    """Return the log in a file's bytes; raises as recompute does."""
    log = decode(raw)
    if log.header.workload != workload.digest:
        raise InvalidInput(
            f"raw log: it is of workload {log.header.workload[:12]}, not of {workload.name} ({workload.digest[:12]})"
        )
    return log
