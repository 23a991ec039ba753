"""Marks: which answers are right, by the two filters of lm-eval's stock task."""

import json

import pytest

from service.domain.answers import BadSamples, mark


def samples(*pairs: tuple[str, str]) -> bytes:
    return b"".join(
        json.dumps({"index": i, "question": "?", "target": target, "response": response}).encode() + b"\n"
        for i, (target, response) in enumerate(pairs)
    )


@pytest.mark.parametrize(
    ("response", "strict", "flexible"),
    [
        (" It is <<4*3=12>>12.\n#### 12", "1", "1"),
        (" It is 12.", "0", "1"),
        ("#### 12\n\nLater 13", "1", "0"),
        ("#### 13", "0", "0"),
        ("#### $12", "0", "1"),
        ("I paid $12.", "0", "1"),
        ("#### 12.", "1", "1"),
        ("", "0", "0"),
        ("I do not know", "0", "0"),
        ("####12", "0", "1"),
    ],
)
def test_strict_takes_the_number_after_the_mark_and_flexible_the_last_number(
    response: str, strict: str, flexible: str
) -> None:
    found = mark(samples(("So it is 12.\n#### 12", response)), 1)
    assert (found.strict, found.flexible) == (strict, flexible)


def test_commas_and_dollars_do_not_count_and_signs_do() -> None:
    found = mark(samples(("#### 2,125", "#### 2125"), ("#### 70000", "#### 70,000"), ("#### 5", "#### -5")), 3)
    assert (found.strict, found.flexible) == ("110", "110")


@pytest.mark.parametrize(
    ("raw", "n", "problem"),
    [
        (samples(("#### 1", "1")), 2, "1 lines for 2 questions"),
        (b"no json\n", 1, "line 1 is no sample"),
        (b'{"index": 1, "target": "#### 1", "response": ""}\n', 1, "not the sample of question 0"),
        (b'{"index": 0, "target": "#### 1", "response": null}\n', 1, "not the sample of question 0"),
        (b'{"index": 0, "target": "1", "response": ""}\n', 1, "no result"),
    ],
)
def test_damaged_samples_are_refused_and_named(raw: bytes, n: int, problem: str) -> None:
    with pytest.raises(BadSamples, match=problem):
        mark(raw, n)
