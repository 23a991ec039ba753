"""What the simulated model answers: right as often as its profile says, and mostly as every other build does."""

import json
from pathlib import Path

import orjson
import pytest

from images.simulated.answers import UNKNOWN, QuestionsError, Skill, answer_to, is_right, last_question, load_answers
from images.simulated.requests import Limits, Plan, plan_completion
from tests.images.simulated.conftest import Engines

BUNDLED = Path(__file__).parents[3] / "images" / "gsm8k" / "questions.jsonl"
MANY = [f"How many are {number} and {number}?" for number in range(4000)]


def _plan(skill: Skill, answers: dict[str, str], prompt: str, **fields: object) -> Plan:
    body = {"model": "m", "prompt": prompt, "temperature": 0, "max_tokens": 500} | fields
    limits = Limits("m", 4000, 16, 2000, skill, answers)
    found = plan_completion(orjson.dumps(body), limits)
    assert isinstance(found, Plan), found
    return found


def test_the_share_of_right_answers_is_the_accuracy_but_for_the_flips() -> None:
    right = sum(is_right(Skill(0.92, 0.0, "a"), question) for question in MANY) / len(MANY)
    assert right == pytest.approx(0.92, abs=0.015)
    flipped = [is_right(Skill(0.92, 0.1, "a"), q) != is_right(Skill(0.92, 0.0, "a"), q) for q in MANY]
    assert sum(flipped) / len(MANY) == pytest.approx(0.1, abs=0.015)


def test_a_better_build_answers_all_that_a_worse_one_does_without_flips() -> None:
    worse = {q for q in MANY if is_right(Skill(0.80, 0.0, "a"), q)}
    better = {q for q in MANY if is_right(Skill(0.92, 0.0, "b"), q)}
    assert worse < better


def test_two_builds_of_one_accuracy_differ_only_by_their_flips_and_a_build_never_from_itself() -> None:
    one, other = Skill(0.92, 0.01, "a"), Skill(0.92, 0.01, "b")
    differ = sum(is_right(one, q) != is_right(other, q) for q in MANY) / len(MANY)
    assert 0.008 < differ < 0.035
    assert all(is_right(one, q) == is_right(one, q) for q in MANY)


def test_a_right_answer_is_the_files_and_a_wrong_one_has_another_result() -> None:
    answers = {"Q": "It is 1,000*2=<<1000*2=2000>>2,000 \u2019so\u2019.\n#### 2,000"}
    right = answer_to(Skill(1.0, 0.0, "a"), answers, "Q")
    wrong = answer_to(Skill(0.0, 0.0, "a"), answers, "Q")
    assert (right.right, wrong.right) == (True, False)
    assert right.text == " It is 1,000*2=<<1000*2=2000>>2,000 ?so?.\n#### 2,000"
    assert wrong.text.endswith("#### 2001")
    assert answer_to(Skill(1.0, 0.0, "a"), answers, "another").text == UNKNOWN
    assert answer_to(Skill(1.0, 0.0, "a"), answers, "another").right is None


def test_the_last_question_of_a_prompt_is_what_is_asked() -> None:
    assert last_question("Question: A?\nAnswer: 1\n\nQuestion: B? \nAnswer:") == "B?"
    assert last_question("Question: A?\nAnswer: 1") is None
    assert last_question("A?\nAnswer:") is None


def test_an_answer_ends_with_the_end_mark_or_where_max_tokens_and_stop_strings_say() -> None:
    skill, answers = Skill(1.0, 0.0, "a"), {"B?": "One.\n#### 1"}
    prompt = "Question: B?\nAnswer:"
    whole = _plan(skill, answers, prompt)
    assert (whole.output, whole.finish_reason, whole.ends_with_eos) == (b" One.\n#### 1", "stop", True)
    assert (whole.right, whole.plain) == (True, False)
    cut = _plan(skill, answers, prompt, max_tokens=4)
    assert (cut.output, cut.finish_reason) == (b" One", "length")
    stopped = _plan(skill, answers, prompt, stop=["####"])
    assert stopped.output[: stopped.text_length] == b" One.\n"
    assert _plan(skill, answers, prompt, ignore_eos=True).output_tokens == 500
    assert _plan(skill, {}, prompt).right is None
    assert _plan(skill, answers, "anything else").right is None


def test_the_engine_answers_over_http_and_writes_down_whether_it_was_right(engines: Engines, tmp_path: Path) -> None:
    log = tmp_path / "steps.log"
    engine = engines.start("--gsm8k", str(BUNDLED), "--step-log", str(log), extra="accuracy = 1.0\nflip_rate = 0.0\n")
    question = json.loads(BUNDLED.read_text().splitlines()[1])
    prompt = f"Question: {question['question']}\nAnswer:"
    whole = engine.complete(prompt, 500, ignore_eos=False).json()["choices"][0]
    assert (whole["text"], whole["finish_reason"]) == (f" {question['answer']}", "stop")
    chunks = [json.loads(data) for data in engine.stream(prompt, 500, ignore_eos=False) if data != "[DONE]"]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks if chunk["choices"]) == whole["text"]
    engine.complete("no question", 4)
    assert engine.stop()[0] == 0
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert [record.get("right") for record in records if record["kind"] == "request"] == [True, True, None]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "holds no question"),
        ("no json\n", ":1: is no object"),
        ('{"question": "A?", "answer": "1"}\n', ":1: question and answer"),
        ('{"question": "A?", "answer": "#### 1"}\n{"question": 3, "answer": "#### 1"}\n', ":2: question and answer"),
    ],
)
def test_a_file_that_can_not_be_used_is_refused_with_its_line(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text(content)
    with pytest.raises(QuestionsError, match=problem):
        load_answers(path)


def test_an_engine_with_such_a_file_does_not_start(engines: Engines, tmp_path: Path) -> None:
    engine = engines.start("--gsm8k", str(tmp_path / "missing.jsonl"), ready=False)
    status, errors = engine.process.wait(30), engine.stop()[1]
    assert (status, "missing.jsonl: cannot be read" in errors) == (2, True)
