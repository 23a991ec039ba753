"""The questions that come with the project: what the script makes, in gsm8k's format, and right."""

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[3] / "images" / "gsm8k"
CALCULATION = re.compile(r"<<([0-9+*/() -]+)=([0-9]+)>>([0-9]+)")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_questions", FOLDER / "make_questions.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def test_the_committed_files_are_what_the_script_makes(script: ModuleType, tmp_path: Path) -> None:
    script.write_questions(tmp_path)
    for name in ("questions.jsonl", "shots.jsonl"):
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes()


def test_there_are_a_hundred_questions_and_five_other_shots() -> None:
    questions, shots = ([one["question"] for one in read(name)] for name in ("questions", "shots"))
    assert (len(set(questions)), len(set(shots)), set(questions) & set(shots)) == (100, 5, set())


def test_every_calculation_is_right_and_the_last_one_is_the_result() -> None:
    for one in read("questions") + read("shots"):
        *_, last = one["answer"].splitlines()
        found = CALCULATION.findall(one["answer"])
        assert found, one
        for formula, result, repeated in found:
            assert eval(formula, {"__builtins__": {}}) == int(result) == int(repeated), one
        assert last == f"#### {found[-1][2]}"
