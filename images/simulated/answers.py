"""What the simulated model answers to questions in the format of gsm8k, and how often it is right.

Every question has a difficulty in [0, 1), the same for every build, from a hash of its text; a build answers it right
when the difficulty lies below its accuracy. With probability ``flip_rate``, by a hash of build and question, the answer
is the other way round. So two builds agree on most questions, as real ones do, and the same build always says the same.
Runs in the worker process: the step loop never sees a text.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MARK, END = "Question:", "\nAnswer:"
UNKNOWN = " I do not know."
_RESULT = re.compile(r"#### *(-?[0-9][0-9.,]*)")


class QuestionsError(ValueError):
    """A file of questions that can't be used; the text names file and line."""


@dataclass(frozen=True, slots=True)
class Skill:
    """How good a build is: the share of right answers, the share of flipped ones, and what tells it from others."""

    accuracy: float
    flip_rate: float
    build: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A text in ASCII. ``right`` is None for the answer to a question that is not in the file."""

    text: str
    right: bool | None


def load_answers(path: Path) -> dict[str, str]:
    """The answers of a file of JSON lines by their questions. Raises QuestionsError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise QuestionsError(f"{path}: cannot be read: {error}") from error
    found = {}
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            question, answer = entry["question"], entry["answer"]
        except (ValueError, KeyError, TypeError) as error:
            raise QuestionsError(f"{path}:{number}: is no object with question and answer") from error
        if not isinstance(question, str) or not isinstance(answer, str) or not _RESULT.search(answer):
            raise QuestionsError(f"{path}:{number}: question and answer must be texts, the answer with '#### NUMBER'")
        found[question.strip()] = answer
    if not found:
        raise QuestionsError(f"{path}: holds no question")
    return found


def last_question(prompt: str) -> str | None:
    """The question that a prompt ends with, or None when it asks none in the format of gsm8k."""
    if not prompt.endswith(END):
        return None
    at = prompt.rfind(MARK)
    return prompt[at + len(MARK) : -len(END)].strip() if at >= 0 else None


def is_right(skill: Skill, question: str) -> bool:
    """Whether the build answers a question of its file rightly."""
    right = _share(f"difficulty\0{question}") < skill.accuracy
    return right != (_share(f"flip\0{skill.build}\0{question}") < skill.flip_rate)


def answer_to(skill: Skill, answers: Mapping[str, str], question: str) -> Answer:
    """What the build says, in the format of the file's answers; a wrong one ends with another number."""
    known = answers.get(question)
    if known is None:
        return Answer(UNKNOWN, None)
    right = is_right(skill, question)
    # An output token is one byte of ASCII; no number is lost by that.
    text = " " + known.encode("ascii", "replace").decode("ascii")
    return Answer(text if right else _RESULT.sub(lambda found: f"#### {_other(found[1])}", text), right)


def _other(number: str) -> str:
    """Another number than this one."""
    whole = number.replace(",", "").partition(".")[0]
    return str(int(whole) + 1)


def _share(text: str) -> float:
    """A number in [0, 1) that only depends on the text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64
