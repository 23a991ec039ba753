"""The model that the CPU builds serve: its files agree with each other and with the script that makes them."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

MODELS = Path(__file__).parents[3] / "images" / "models"
MODEL = MODELS / "tiny-llama"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_tiny_llama", MODELS / "make_tiny_llama.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((MODEL / name).read_text(encoding="utf-8"))
    return value


def test_the_committed_files_are_what_the_script_holds(script: ModuleType) -> None:
    assert read("config.json") == script.CONFIG
    assert read("generation_config.json") == script.GENERATION_CONFIG
    assert read("tokenizer_config.json") == script.TOKENIZER_CONFIG


def test_each_byte_is_the_token_of_its_value_and_the_marks_follow(script: ModuleType) -> None:
    tokenizer = read("tokenizer.json")
    vocabulary = tokenizer["model"]["vocab"]
    symbols = script.byte_symbols()
    assert len(set(symbols)) == 256
    assert {symbol: vocabulary[symbol] for symbol in symbols} == {symbol: byte for byte, symbol in enumerate(symbols)}
    assert symbols[ord("a")] == "a"
    assert symbols[ord(" ")] == "Ġ"
    config = read("config.json")
    marks = {mark["content"]: mark["id"] for mark in tokenizer["added_tokens"]}
    assert marks == {"<s>": config["bos_token_id"], "</s>": config["eos_token_id"]}
    assert max(marks.values()) < config["vocab_size"]
    assert tokenizer["model"]["merges"] == []
