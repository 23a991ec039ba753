"""Which answers to gsm8k's questions are right: the two filters of lm-eval's stock task, applied to what was answered.

Strict match takes the number after ``####``, flexible extract the last number of the text; commas, dollar signs and a
final point don't count. As lm-eval 0.4.13 does it (``lm_eval/tasks/gsm8k/gsm8k.yaml``, version 3.0, its RegexFilter and
exact_match), so that a score computed here is the one that it prints.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

_STRICT = re.compile(r"#### (\-?[0-9\.\,]+)")
_FLEXIBLE = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")
_IGNORED = [re.compile(pattern) for pattern in (r",", r"\$", r"(?s).*#### ", r"\.$")]


class BadSamples(ValueError):
    """A file of samples that is damaged or not what was announced; the text says where and what."""


@dataclass(frozen=True)
class Marks:
    """A 1 for a right and a 0 for a wrong answer, for each question in the order of the file."""

    strict: str
    flexible: str


def mark(raw: bytes, n: int) -> Marks:
    """Return the marks of ``n`` questions.

    ``raw`` is JSON lines, one for each question in order: ``index`` from 0, ``question``, ``target`` (the answer of the
    file), ``response`` (the text that the server generated). Raises BadSamples.
    """
    lines = raw.splitlines()
    if len(lines) != n:
        raise BadSamples(f"it has {len(lines)} lines for {n} questions")
    strict, flexible = [], []
    for index, line in enumerate(lines):
        target, response = _sample(index, line)
        strict.append(_is_right(_first, response, target))
        flexible.append(_is_right(_last, response, target))
    return Marks("".join("01"[right] for right in strict), "".join("01"[right] for right in flexible))


def _sample(index: int, line: bytes) -> tuple[str, str]:
    try:
        sample = json.loads(line)
        number, target, response = sample["index"], sample["target"], sample["response"]
    except (ValueError, KeyError, TypeError) as error:
        raise BadSamples(f"line {index + 1} is no sample: {error!r}") from error
    if number != index or not isinstance(target, str) or not isinstance(response, str):
        raise BadSamples(f"line {index + 1} is not the sample of question {index}")
    if "####" not in target:
        raise BadSamples(f"line {index + 1}: the target has no result after ####")
    return target, response


def _is_right(extract: Callable[[str], str | None], response: str, target: str) -> bool:
    found = extract(response)
    return found is not None and _normal(found) == _normal(target)


def _first(response: str) -> str | None:
    found = _STRICT.search(response)
    return found[1].strip() if found else None


def _last(response: str) -> str | None:
    found = _FLEXIBLE.findall(response)
    return next((group for group in found[-1] if group), "").strip() if found else None


def _normal(text: str) -> str:
    for pattern in _IGNORED:
        text = pattern.sub("", text)
    return text.lower()
