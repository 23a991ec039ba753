"""Which questions a runner asks: its own files, those that come with the simulated builds, or the dataset cache."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runners.launch.launchable import LaunchError
from runners.settings import RunnerSettings, bundled
from service.contract.failures import FailureClass

SHOTS = 5
LABEL = "gsm8k"
BUNDLED_LABEL = "gsm8k-like (simulated)"
_CACHED = "hub/datasets--openai--gsm8k/snapshots/*/main"


class EvaluationError(LaunchError):
    """The questions can't be asked; ``message`` says why and what to do. Ends no attempt."""

    def __init__(self, message: str) -> None:
        super().__init__(FailureClass.EVALUATION, message)


@dataclass(frozen=True)
class Questions:
    """Two files in gsm8k's format: JSON lines or Parquet with ``question`` and ``answer``. ``label`` is for people."""

    file: Path
    shots: Path
    form: Literal["json", "parquet"]
    label: str

    def hashes(self) -> tuple[str, str]:
        """Return the SHA-256 of questions and shots."""
        return _sha256(self.file), _sha256(self.shots)


def find_questions(settings: RunnerSettings, *, is_simulated: bool) -> Questions:
    """Return what to ask. Raises EvaluationError when this runner has no questions, or unusable ones."""
    if settings.gsm8k is not None:
        if settings.gsm8k_shots is None:
            raise EvaluationError("questions without examples: give the file of the examples with --gsm8k-shots")
        check(settings.gsm8k, 1)
        check(settings.gsm8k_shots, SHOTS)
        is_bundled = _sha256(settings.gsm8k) == _sha256(bundled("gsm8k", "questions.jsonl"))
        return Questions(settings.gsm8k, settings.gsm8k_shots, "json", BUNDLED_LABEL if is_bundled else LABEL)
    if is_simulated:
        return Questions(bundled("gsm8k", "questions.jsonl"), bundled("gsm8k", "shots.jsonl"), "json", BUNDLED_LABEL)
    for folder in sorted(settings.dataset_cache.expanduser().glob(_CACHED)):
        tests, trains = sorted(folder.glob("test-*.parquet")), sorted(folder.glob("train-*.parquet"))
        if len(tests) == 1 and len(trains) == 1:
            return Questions(tests[0].resolve(), trains[0].resolve(), "parquet", LABEL)
    raise EvaluationError(
        "no questions on this runner: start it with --gsm8k FILE --gsm8k-shots FILE (JSON lines with question and "
        f"answer), or put openai/gsm8k into the dataset cache {settings.dataset_cache}"
    )


def simulated_answers(settings: RunnerSettings) -> Path | None:
    """Return the file from which a simulated build answers: the one that its runner asks from, if it can be used."""
    try:
        return find_questions(settings, is_simulated=True).file
    except EvaluationError:
        return None


def check(path: Path, least: int) -> int:
    """Return how many questions a file of JSON lines holds. Raises EvaluationError, naming the line that is wrong."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise EvaluationError(f"{path} can't be read: {error}") from error
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            good = isinstance(entry["question"], str) and "####" in entry["answer"]
        except (ValueError, KeyError, TypeError):
            good = False
        if not good:
            raise EvaluationError(f"{path}, line {number}: is no object with question and an answer that ends '#### N'")
    if len(lines) < least:
        raise EvaluationError(f"{path} holds {len(lines)} questions; at least {least} are needed")
    return len(lines)


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise EvaluationError(f"{path} can't be read: {error.strerror}") from error
