"""One server is asked by lm-eval: what comes out is what the engine answered, or no score at all."""

import asyncio
import json
import os
import subprocess
from pathlib import Path

import pytest

from runners.clock import SystemClock
from runners.evaluate.examination import RESULTS, SAMPLES, Examination, Examinee
from runners.evaluate.questions import EvaluationError, Questions, find_questions
from runners.launch.process import ServerProcess
from runners.launch.sessions import TAG_RUNNER, find
from runners.settings import RunnerSettings
from service.contract.lease import EvaluationOrder
from service.contract.upload import Scored
from service.domain.answers import mark
from tests.images.simulated.engine_process import MODEL, EngineProcess
from tests.runners.evaluate.conftest import StartEngine, missing

RUNNER = f"run_{os.getpid()}"


def answered(engine: EngineProcess, tmp_path: Path) -> list[bool]:
    """What the engine itself wrote down of its answers; it must have been stopped."""
    engine.stop()
    records = [json.loads(line) for log in tmp_path.glob("steps-*.log") for line in log.read_text().splitlines()]
    return [record["right"] for record in records if "right" in record]


class Bench:
    """Asks in a folder of its own, and remembers what it was told."""

    def __init__(self, settings: RunnerSettings, folder: Path) -> None:
        self.settings = settings
        self.folder = folder
        self.progress: list[tuple[int, int]] = []
        self.processes: list[ServerProcess] = []
        folder.mkdir()

    def examination(self, engine: EngineProcess, questions: Questions, limit: int | None = None) -> Examination:
        return Examination(
            Examinee(engine.port, MODEL, "att_1", RUNNER),
            EvaluationOrder(limit=limit),
            questions,
            self.folder,
            self.settings,
            SystemClock(),
            self.processes.append,
            lambda done, of: self.progress.append((done, of)),
        )

    def ask(self, engine: EngineProcess, limit: int | None = None) -> Scored:
        questions = find_questions(self.settings, is_simulated=True)
        return asyncio.run(self.examination(engine, questions, limit).run())

    def left(self) -> int:
        return len(find([process.session for process in self.processes], (TAG_RUNNER, RUNNER)))


@pytest.fixture
def bench(settings: RunnerSettings, lm_eval_python: Path, tmp_path: Path) -> Bench:
    return Bench(settings.model_copy(update={"lm_eval_python": lm_eval_python}), tmp_path / "attempt")


def test_the_score_is_what_the_engine_answered_and_what_lm_eval_says(
    bench: Bench, start_engine: StartEngine, tmp_path: Path
) -> None:
    engine = start_engine(extra="accuracy = 0.7\n")
    found = bench.ask(engine)
    marks = mark((bench.folder / SAMPLES).read_bytes(), found.n)
    right = answered(engine, tmp_path)
    assert (found.n, len(right), found.failed, found.label) == (100, 100, 0, "gsm8k-like (simulated)")
    assert marks.strict.count("1") == marks.flexible.count("1") == sum(right)
    assert 50 < sum(right) < 90
    theirs = json.loads((bench.folder / RESULTS).read_text())["results"]["backslide_gsm8k"]
    assert theirs["exact_match,strict-match"] == pytest.approx(sum(right) / 100)
    assert theirs["exact_match,flexible-extract"] == pytest.approx(sum(right) / 100)
    assert bench.progress[-1] == (100, 100)
    assert bench.left() == 0


def test_a_limit_asks_the_first_questions_only(bench: Bench, start_engine: StartEngine) -> None:
    found = bench.ask(start_engine(extra="accuracy = 1.0\nflip_rate = 0.0\n"), limit=7)
    assert found.n == 7
    assert mark((bench.folder / SAMPLES).read_bytes(), 7).strict == "1111111"


def test_requests_that_fail_leave_no_score_instead_of_a_lower_one(bench: Bench, start_engine: StartEngine) -> None:
    engine = start_engine(extra="accuracy = 1.0\n[faults.in_band_error]\nevery = 3\nafter_tokens = 0\n")
    with pytest.raises(EvaluationError, match=r"status 1: Status code: 500, Response text: .*Internal server error"):
        bench.ask(engine)
    assert not (bench.folder / RESULTS).exists()
    assert bench.left() == 0


def test_a_server_that_is_gone_leaves_no_score(bench: Bench, start_engine: StartEngine) -> None:
    engine = start_engine()
    engine.stop()
    with pytest.raises(EvaluationError, match=r"status 1: ClientConnectorError.*127\.0\.0\.1"):
        bench.ask(engine)


def test_giving_up_ends_the_process(bench: Bench, start_engine: StartEngine) -> None:
    engine = start_engine()
    questions = find_questions(bench.settings, is_simulated=True)

    async def give_up() -> None:
        asking = asyncio.ensure_future(bench.examination(engine, questions).run())
        while not bench.processes:
            await asyncio.sleep(0.01)
        asking.cancel()
        await asyncio.wait({asking})
        assert asking.cancelled()

    asyncio.run(asyncio.wait_for(give_up(), 60))
    assert bench.left() == 0


def test_the_dataset_cache_is_asked_from_where_it_is(bench: Bench, start_engine: StartEngine) -> None:
    folder = bench.folder / "cache/hub/datasets--openai--gsm8k/snapshots/abc/main"
    folder.mkdir(parents=True)
    source = find_questions(bench.settings, is_simulated=True)
    code = (
        "import sys, pandas\n"
        "for source, target in zip(sys.argv[1::2], sys.argv[2::2]):\n"
        "    pandas.read_json(source, lines=True).to_parquet(target)\n"
    )
    targets = [folder / "test-00000-of-00001.parquet", folder / "train-00000-of-00001.parquet"]
    arguments = [str(source.file), str(targets[0]), str(source.shots), str(targets[1])]
    subprocess.run([str(bench.settings.lm_eval_python), "-c", code, *arguments], check=True, timeout=60)
    settings = bench.settings.model_copy(update={"dataset_cache": bench.folder / "cache"})
    cached = find_questions(settings, is_simulated=False)
    engine = start_engine(extra="accuracy = 1.0\nflip_rate = 0.0\n")
    found = asyncio.run(bench.examination(engine, cached, limit=9).run())
    assert (found.n, found.label) == (9, "gsm8k")
    assert mark((bench.folder / SAMPLES).read_bytes(), 9).strict == "1" * 9


def test_the_real_1319_questions(bench: Bench, start_engine: StartEngine, tmp_path: Path) -> None:
    data = os.environ.get("BACKSLIDE_TEST_DATA")
    files = [Path(data or ".") / "gsm8k" / name for name in ("test.jsonl", "train_head.jsonl")]
    if data is None or not all(path.is_file() for path in files):
        missing("the 1,319 questions are not there: BACKSLIDE_TEST_DATA/gsm8k/test.jsonl and train_head.jsonl")
    bench.settings = bench.settings.model_copy(update={"gsm8k": files[0], "gsm8k_shots": files[1]})
    engine = start_engine(files[0], "accuracy = 0.92\n")
    found = bench.ask(engine)
    marks = mark((bench.folder / SAMPLES).read_bytes(), found.n)
    right = answered(engine, tmp_path)
    assert (found.n, len(right), found.label) == (1319, 1319, "gsm8k")
    assert marks.strict.count("1") == sum(right)
    # A flip, one in a hundred, costs a right answer more often than it gives one.
    meant = 0.92 * 0.99 + 0.08 * 0.01
    assert abs(sum(right) / 1319 - meant) < 3 * (meant * (1 - meant) / 1319) ** 0.5
