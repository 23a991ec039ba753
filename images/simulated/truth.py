"""The true ratio of two simulated builds, from the step logs that the engines wrote themselves.

`python -m images.simulated truth --base LOG... --head LOG...` prints it as JSON; a log is one launch.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from images.simulated.steplog import StepLogError, read_lines


@dataclass(frozen=True, slots=True)
class Launch:
    """Medians of one launch, in ms of compressed time: achieved and nominal time of the steps in which all
    max_num_seqs requests decoded and nothing was prefilled, and TPOT of the requests with the most output tokens
    ((last − first emission) / (tokens − 1)), as it was and without this launch's own effect (a factor that the engine
    drew at its start); and how many of each there were.
    """

    real_ms: float
    nominal_ms: float
    tpot_ms: float
    tpot_free_ms: float
    steps: int
    requests: int


@dataclass(frozen=True, slots=True)
class Truth:
    """Ratios head over base of the mean over launches of those medians, and the number of launches of each.

    ``tpot`` is what these launches really did, their luck included; ``tpot_free`` is what the builds do: an interval
    that claims to hold the truth about the builds must hold this one.
    """

    real: float
    nominal: float
    tpot: float
    tpot_free: float
    base_launches: int
    head_launches: int


def measure_launch(path: Path) -> Launch:
    """The medians of one step log. Raises StepLogError, also when the engine was never fully occupied."""
    full: int | None = None
    effect = 1.0
    real, nominal = [], []
    requests: list[tuple[int, float]] = []
    for line in read_lines(path):
        if line.get("kind") == "launch":
            full = int(_number(path, line, "max_num_seqs"))
            effect = _number(path, line, "launch_effect")
        elif line.get("kind") == "step" and line.get("decoding") == full and line.get("prefill_tokens") == 0:
            real.append(_number(path, line, "ms"))
            nominal.append(_number(path, line, "nominal_ms"))
        elif line.get("kind") == "request" and line.get("finish_reason") != "abort":
            tokens = int(_number(path, line, "output_tokens"))
            if tokens > 1:
                span_ms = (_number(path, line, "last_emit_ns") - _number(path, line, "first_emit_ns")) / 1e6
                requests.append((tokens, span_ms / (tokens - 1)))
    if full is None:
        raise StepLogError(f"{path}: has no launch line: not a step log")
    if not real:
        raise StepLogError(f"{path}: there is no step in which all {full} requests decoded and nothing was prefilled")
    if not requests:
        raise StepLogError(f"{path}: no request of two or more tokens was finished")
    # Probes and priming requests are short; the load's own are the longest.
    longest = max(tokens for tokens, _ in requests)
    tpots = [tpot for tokens, tpot in requests if tokens == longest]
    return Launch(
        real_ms=statistics.median(real),
        nominal_ms=statistics.median(nominal),
        tpot_ms=statistics.median(tpots),
        tpot_free_ms=statistics.median(tpots) / effect,
        steps=len(real),
        requests=len(tpots),
    )


def step_ratio(base_logs: Sequence[Path], head_logs: Sequence[Path]) -> Truth:
    """The truth about two builds; one log a launch, at least one each. Raises StepLogError."""
    if not base_logs or not head_logs:
        raise StepLogError("at least one step log of each build is needed")
    base = [measure_launch(path) for path in base_logs]
    head = [measure_launch(path) for path in head_logs]
    return Truth(
        real=_ratio([each.real_ms for each in head], [each.real_ms for each in base]),
        nominal=_ratio([each.nominal_ms for each in head], [each.nominal_ms for each in base]),
        tpot=_ratio([each.tpot_ms for each in head], [each.tpot_ms for each in base]),
        tpot_free=_ratio([each.tpot_free_ms for each in head], [each.tpot_free_ms for each in base]),
        base_launches=len(base),
        head_launches=len(head),
    )


def _ratio(head: Sequence[float], base: Sequence[float]) -> float:
    return statistics.fmean(head) / statistics.fmean(base)


def _number(path: Path, line: dict[str, object], key: str) -> float:
    value = line.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise StepLogError(f"{path}: a {line.get('kind')} line has no number '{key}'")
    return value


def main(argv: list[str]) -> int:
    """Print the truth as JSON; 0, or 2 with a message when it can't be computed."""
    parser = argparse.ArgumentParser(prog="python -m images.simulated truth", allow_abbrev=False)
    parser.add_argument("--base", type=Path, nargs="+", required=True, metavar="LOG")
    parser.add_argument("--head", type=Path, nargs="+", required=True, metavar="LOG")
    arguments = parser.parse_args(argv)
    try:
        answer = step_ratio(arguments.base, arguments.head)
    except StepLogError as error:
        print(f"truth: {error}", file=sys.stderr)
        return 2
    print(orjson.dumps(asdict(answer)).decode())
    return 0
