"""The step loop on a simulated clock: deadlines, counts and the step log."""

import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from images.simulated.engine import Emission, Engine, Outlet, Pace
from images.simulated.metrics import Metrics
from images.simulated.prefix_cache import PrefixCache
from images.simulated.profile import Profile, load_profile
from images.simulated.scheduler import Scheduler, Sequence
from images.simulated.steplog import StepLog, read_lines
from images.simulated.steptime import Noise, step_ms
from tests.images.simulated.engine_process import CATALOG, WAIT_S

MS = 1_000_000


@dataclass
class LatePacer:
    """Time that passes only by waiting; each wait ends as late as the list says (ns), at last punctually."""

    lateness_ns: list[int] = field(default_factory=list)
    instant_ns: int = 1_000_000_000

    def now_ns(self) -> int:
        return self.instant_ns

    def wait_until(self, deadline_ns: int) -> int:
        late = self.lateness_ns.pop(0) if self.lateness_ns else 0
        self.instant_ns = max(self.instant_ns, deadline_ns) + late
        return self.instant_ns

    def yield_to_loop(self) -> None:
        """Nothing else runs on this clock."""


@dataclass
class Bench:
    """An engine with everything around it; run() serves some requests to their end."""

    log_path: Path
    profile: Profile
    pacer: LatePacer = field(default_factory=LatePacer)
    compression: float = 1.0
    seed: int = 0
    metrics: Metrics = field(default_factory=lambda: Metrics("m"))
    emitted: list[Emission] = field(default_factory=list)
    broken: threading.Event = field(default_factory=threading.Event)

    def run(self, *sequences: Sequence, scheduler: Scheduler | None = None) -> list[dict[str, object]]:
        done = threading.Event()
        expected = sum(each.output_tokens for each in sequences)

        def deliver(emissions: list[Emission]) -> None:
            self.emitted += emissions
            if len(self.emitted) >= expected:
                done.set()

        def break_off() -> None:
            self.broken.set()
            done.set()

        noise = Noise(self.profile.launch_sd, self.profile.step_sd, self.seed)
        pace = Pace(self.profile, noise, self.compression)
        log = StepLog(self.log_path)
        scheduler = scheduler or Scheduler(PrefixCache(10_000), 16, 8192, 16)
        outlet = Outlet(deliver, break_off)
        engine = Engine(scheduler, pace, self.pacer, self.metrics, log, outlet)
        for sequence in sequences:
            engine.submit(sequence)
        engine.start()
        assert done.wait(WAIT_S)
        engine.stop()
        log.close()
        return list(read_lines(self.log_path))


@pytest.fixture
def profile() -> Profile:
    return replace(load_profile(CATALOG / "v0.19.1.toml"), launch_sd=0.0, step_sd=0.0)


def _sequence(number: int, prompt: int, output: int) -> Sequence:
    return Sequence(number, prompt, output, [number * 1000 + i for i in range((prompt + output) // 16)], "length", 0)


def _steps(lines: list[dict[str, object]], key: str) -> list[float]:
    return [float(str(line[key])) for line in lines if line["kind"] == "step"]


def test_a_late_step_shifts_the_following_and_none_is_shortened(tmp_path: Path, profile: Profile) -> None:
    bench = Bench(tmp_path / "log", profile, LatePacer([0, 0, 5 * MS, 0, 2 * MS, 0]))
    lines = bench.run(_sequence(1, 100, 8))
    excess = [a - b for a, b in zip(_steps(lines, "ms"), _steps(lines, "planned_ms"), strict=True)]
    assert excess == pytest.approx([0, 0, 5, 0, 2, 0, 0, 0], abs=1e-5)
    begins = _steps(lines, "start_ns")
    ends = [begin + ms * MS for begin, ms in zip(begins, _steps(lines, "ms"), strict=True)]
    assert begins[1:] == pytest.approx(ends[:-1])


def test_planned_time_is_the_profiles_over_the_compression_times_effect_and_noise(
    tmp_path: Path, profile: Profile
) -> None:
    bench = Bench(tmp_path / "log", replace(profile, launch_sd=0.1, step_sd=0.1), compression=4.0, seed=3)
    lines = bench.run(_sequence(1, 100, 5))
    noise = Noise(0.1, 0.1, 3)
    nominal = [step_ms(profile, context, prefill) / 4 for context, prefill in ((0, 100), (101, 0), (102, 0))]
    assert _steps(lines, "nominal_ms")[:3] == pytest.approx(nominal)
    planned = [each * noise.launch_effect * noise.next_factor() for each in nominal]
    assert _steps(lines, "planned_ms")[:3] == pytest.approx(planned)


def test_counts_and_request_records_agree_with_what_was_emitted(tmp_path: Path, profile: Profile) -> None:
    bench = Bench(tmp_path / "log", profile)
    lines = bench.run(_sequence(1, 100, 5), _sequence(2, 9000, 1), _sequence(3, 50, 7))
    assert sorted(bench.emitted) == sorted(
        [(number, last) for number, count in ((1, 5), (2, 1), (3, 7)) for last in [False] * (count - 1) + [True]]
    )
    metrics = bench.metrics
    assert (metrics.prompt_tokens, metrics.generation_tokens) == (9150, 13)
    assert metrics.finished == {"stop": 0, "length": 3, "abort": 0, "error": 0}
    assert sum(metrics.time_to_first_token.counts) == sum(metrics.e2e_request_latency.counts) == 3
    assert sum(metrics.inter_token_latency.counts) == 4 + 0 + 6
    assert (metrics.requests_running, metrics.requests_waiting, metrics.kv_cache_usage) == (0, 0, 0.0)
    records = {line["number"]: line for line in lines if line["kind"] == "request"}
    assert {number: record["output_tokens"] for number, record in records.items()} == {1: 5, 2: 1, 3: 7}
    span_ms = (int(str(records[3]["last_emit_ns"])) - int(str(records[3]["first_emit_ns"]))) / MS
    first = next(
        i for i, begin in enumerate(_steps(lines, "start_ns")) if begin >= int(str(records[3]["first_emit_ns"]))
    )
    assert span_ms == pytest.approx(sum(_steps(lines, "ms")[first : first + 6]))
    gaps_s = metrics.inter_token_latency.total_s
    assert gaps_s * 1000 == pytest.approx(
        sum((int(str(r["last_emit_ns"])) - int(str(r["first_emit_ns"]))) / MS for r in records.values())
    )


def test_an_error_in_the_thread_is_reported(tmp_path: Path, profile: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    class BrokenPacer(LatePacer):
        def wait_until(self, deadline_ns: int) -> int:
            raise OSError("no clock")

    seen: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda arguments: seen.append(arguments.exc_type))
    bench = Bench(tmp_path / "log", profile, BrokenPacer())
    bench.run(_sequence(1, 10, 2))
    assert bench.broken.is_set()
    assert bench.emitted == []
    assert seen == [OSError]
