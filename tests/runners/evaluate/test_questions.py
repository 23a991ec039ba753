"""Which questions a runner asks, and what it says when it has none."""

import json
from pathlib import Path

import pytest

from runners.evaluate.questions import BUNDLED_LABEL, EvaluationError, find_questions, simulated_answers
from runners.settings import RunnerSettings, bundled
from service.contract.failures import FailureClass


def write(path: Path, count: int) -> Path:
    lines = [json.dumps({"question": f"{n}?", "answer": f"#### {n}"}) + "\n" for n in range(count)]
    path.write_text("".join(lines))
    return path


@pytest.fixture
def bare(settings: RunnerSettings, tmp_path: Path) -> RunnerSettings:
    """A runner that nobody gave questions, on a machine without a dataset cache."""
    return settings.model_copy(update={"dataset_cache": tmp_path / "no-cache"})


def test_simulated_builds_are_asked_the_questions_that_come_with_them(bare: RunnerSettings) -> None:
    found = find_questions(bare, is_simulated=True)
    assert (found.file, found.label, found.form) == (bundled("gsm8k", "questions.jsonl"), BUNDLED_LABEL, "json")
    assert simulated_answers(bare) == found.file


def test_real_builds_are_never_asked_those(bare: RunnerSettings) -> None:
    with pytest.raises(EvaluationError, match="no questions on this runner: start it with --gsm8k") as raised:
        find_questions(bare, is_simulated=False)
    assert raised.value.failure_class is FailureClass.EVALUATION


def test_files_that_are_named_go_first_and_simulated_builds_answer_them_too(
    bare: RunnerSettings, tmp_path: Path
) -> None:
    files = {"gsm8k": write(tmp_path / "test.jsonl", 3), "gsm8k_shots": write(tmp_path / "train.jsonl", 5)}
    named = bare.model_copy(update=files)
    for is_simulated in (True, False):
        found = find_questions(named, is_simulated=is_simulated)
        assert (found.file, found.shots, found.label) == (*files.values(), "gsm8k")
    assert simulated_answers(named) == files["gsm8k"]


def test_the_bundled_questions_keep_their_label_under_any_name(bare: RunnerSettings, tmp_path: Path) -> None:
    copy = tmp_path / "test.jsonl"
    copy.write_bytes(bundled("gsm8k", "questions.jsonl").read_bytes())
    files = {"gsm8k": copy, "gsm8k_shots": bundled("gsm8k", "shots.jsonl")}
    assert find_questions(bare.model_copy(update=files), is_simulated=False).label == BUNDLED_LABEL


@pytest.mark.parametrize(
    ("content", "shots", "problem"),
    [
        ("not json\n", 5, "line 1: is no object"),
        ('{"question": "1?", "answer": "1"}\n', 5, "line 1: is no object"),
        ("", 5, "holds 0 questions"),
        ('{"question": "1?", "answer": "#### 1"}\n', 4, "holds 4 questions; at least 5"),
        (None, 5, "can't be read"),
    ],
)
def test_files_that_can_not_be_used_are_named(
    bare: RunnerSettings, tmp_path: Path, content: str | None, shots: int, problem: str
) -> None:
    questions = tmp_path / "test.jsonl"
    if content is not None:
        questions.write_text(content)
    files = {"gsm8k": questions, "gsm8k_shots": write(tmp_path / "train.jsonl", shots)}
    with pytest.raises(EvaluationError, match=problem):
        find_questions(bare.model_copy(update=files), is_simulated=True)
    assert simulated_answers(bare.model_copy(update=files)) is None


def test_questions_without_shots_are_refused(bare: RunnerSettings, tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="--gsm8k-shots"):
        find_questions(bare.model_copy(update={"gsm8k": write(tmp_path / "q.jsonl", 3)}), is_simulated=True)


def test_the_dataset_cache_is_used_for_real_builds(bare: RunnerSettings) -> None:
    folder = bare.dataset_cache / "hub/datasets--openai--gsm8k/snapshots/abc/main"
    folder.mkdir(parents=True)
    for name in ("test", "train"):
        (folder / f"{name}-00000-of-00001.parquet").write_bytes(name.encode())
    found = find_questions(bare, is_simulated=False)
    assert (found.form, found.file.name[:4], found.shots.name[:5]) == ("parquet", "test", "train")
    assert len(set(found.hashes())) == 2
