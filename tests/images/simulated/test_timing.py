"""The simulator's promise: what a client measures is the profile's step time. Ratios only, never wall time."""

import asyncio
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from images.simulated.profile import load_profile
from images.simulated.steptime import step_ms
from images.simulated.truth import Truth, step_ratio
from tests.images.simulated.conftest import Engines
from tests.images.simulated.engine_process import CATALOG, EngineProcess, load, long_prompts

REQUESTS, SHARED, OWN, OUTPUT = 16, 40960, 10240, 128
TOLERANCE = 0.02
PASSES = 3

pytestmark = pytest.mark.timing


def _start(engines: Engines, version: str, seed: int, log: Path) -> EngineProcess:
    arguments = ("--time-compression", "4", "--seed", str(seed), "--step-log", str(log))
    return engines.start(*arguments, profile=CATALOG / f"v{version}.toml")


async def _measure(ports: list[int]) -> list[float]:
    """Median interval between two reads of a stream in ms, on each port, while all are loaded at the same time."""

    async def one(port: int) -> float:
        prompts = long_prompts(REQUESTS, SHARED, OWN, port)
        await load(port, [prompts[0][: SHARED + 16]], 2)
        streams = await load(port, prompts, OUTPUT)
        # The steady window: from the last stream's first token to the first stream's last.
        begin, end = max(stream[0] for stream in streams), min(stream[-1] for stream in streams)
        gaps = [b - a for stream in streams for a, b in pairwise(stream) if begin <= a and b <= end]
        return statistics.median(gaps) / 1e6

    return list(await asyncio.gather(*(one(port) for port in ports)))


def _profile_ratio() -> float:
    context = REQUESTS * (SHARED + OWN + OUTPUT // 2)
    base, head = (load_profile(CATALOG / f"v{version}.toml") for version in ("0.18.0", "0.19.1"))
    return step_ms(head, context, 0) / step_ms(base, context, 0)


def _holds(title: str, take: Callable[[Path], tuple[list[float], Truth]], folder: Path) -> None:
    """One pass of three has to be true: what else runs on the machine can disturb a pass, never mend a wrong engine."""
    expected = _profile_ratio()
    for number in range(PASSES):
        (own := folder / str(number)).mkdir()
        itl_ms, truth = take(own)
        itl = itl_ms[1] / itl_ms[0]
        print(
            f"{title}: profile {expected:.4f}, client ITL {itl:.4f} ({itl_ms[0]:.3f} and {itl_ms[1]:.3f} ms), "
            f"steps {truth.real:.4f} (nominal {truth.nominal:.4f}), TPOT {truth.tpot:.4f}"
        )
        assert truth.nominal == pytest.approx(expected, rel=0.001)
        if [truth.real, itl] == pytest.approx([expected] * 2, rel=TOLERANCE):
            return
    pytest.fail(f"none of {PASSES} passes came within {TOLERANCE:.0%} of the profile's {expected:.4f}")


def test_the_step_ratio_is_the_profiles_when_one_engine_serves_at_a_time(engines: Engines, tmp_path: Path) -> None:
    def take(folder: Path) -> tuple[list[float], Truth]:
        itl_ms = []
        logs = []
        for seed, version in enumerate(("0.18.0", "0.19.1")):
            logs.append(folder / f"{version}.log")
            engine = _start(engines, version, seed, logs[-1])
            itl_ms += asyncio.run(_measure([engine.port]))
            engine.stop()
        return itl_ms, step_ratio(logs[:1], logs[1:])

    _holds("alone", take, tmp_path)


def test_the_step_ratio_is_the_profiles_while_two_engines_serve(engines: Engines, tmp_path: Path) -> None:
    def take(folder: Path) -> tuple[list[float], Truth]:
        logs = [folder / "base.log", folder / "head.log"]
        both = [_start(engines, version, seed, logs[seed]) for seed, version in enumerate(("0.18.0", "0.19.1"))]
        itl_ms = asyncio.run(_measure([engine.port for engine in both]))
        for engine in both:
            engine.stop()
        return itl_ms, step_ratio(logs[:1], logs[1:])

    _holds("together", take, tmp_path)


def test_a_busy_engine_sleeps_between_its_steps(engines: Engines, tmp_path: Path) -> None:
    engine = _start(engines, "0.18.0", 0, tmp_path / "steps.log")
    stat = Path(f"/proc/{engine.process.pid}/stat")

    def cpu_ticks() -> int:
        fields = stat.read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    before, begun = cpu_ticks(), time.monotonic()
    asyncio.run(_measure([engine.port]))
    share = (cpu_ticks() - before) / 100 / (time.monotonic() - begun)
    print(f"processor share while serving: {share:.2f}")
    assert share < 0.6
