"""What a body becomes: a plan, or a refusal in vLLM's shape."""

import orjson
import pytest

from images.simulated.requests import Limits, Plan, Reply, detokenize, plan_completion, tokenize
from images.simulated.tokens import EOS_ID

LIMITS = Limits(model="m", max_model_len=1000, block_size=16, vocabulary_size=2000)


def _plan(**fields: object) -> Plan:
    answer = plan_completion(orjson.dumps({"model": "m", "prompt": "hello", "temperature": 0} | fields), LIMITS)
    assert isinstance(answer, Plan), answer
    return answer


def _refusal(body: bytes) -> dict[str, object]:
    answer = plan_completion(body, LIMITS)
    assert isinstance(answer, Reply)
    error: dict[str, object] = orjson.loads(answer.body)["error"]
    assert error["code"] == answer.status
    assert set(error) == {"message", "type", "param", "code"}
    return error


def test_a_text_is_its_bytes_and_ids_are_taken_as_they_are() -> None:
    assert _plan(prompt="hé").prompt_tokens == 3
    assert _plan(prompt=["hé"]).output == _plan(prompt="hé").output == _plan(prompt=[104, 195, 169]).output
    assert _plan(prompt=[[1999, 3]]).prompt_tokens == 2


def test_without_max_tokens_sixteen_are_generated_and_with_null_all_that_fit() -> None:
    assert _plan(ignore_eos=True).output_tokens == 16
    assert _plan(ignore_eos=True, max_tokens=None).output_tokens == 995


def test_greedy_output_depends_on_the_prompt_alone_and_sampled_output_on_the_seed() -> None:
    assert _plan(seed=1).output == _plan(seed=2).output != _plan(prompt="hallo").output
    assert _plan(temperature=1, seed=1).output == _plan(temperature=1, seed=1).output
    assert _plan(temperature=1, seed=1).output != _plan(temperature=1, seed=2).output
    assert _plan(temperature=1).output != _plan(temperature=1).output


def test_ignore_eos_gives_exactly_max_tokens_and_otherwise_the_model_may_end() -> None:
    kept = _plan(max_tokens=990, ignore_eos=True, prompt="q")
    ended = [_plan(max_tokens=990, prompt=f"q{index}") for index in range(20)]
    assert (kept.output_tokens, kept.finish_reason, kept.ends_with_eos) == (990, "length", False)
    short = [plan for plan in ended if plan.ends_with_eos]
    assert short
    assert all(plan.finish_reason == "stop" and plan.output_tokens < 990 for plan in short)


def test_min_tokens_keeps_the_model_from_ending() -> None:
    plans = [_plan(max_tokens=800, min_tokens=700, prompt=f"q{index}") for index in range(20)]
    assert all(plan.output_tokens >= 700 for plan in plans)


def test_a_stop_string_ends_the_output_and_is_cut_from_the_text() -> None:
    free = _plan(max_tokens=200, ignore_eos=True).output
    stop = free[50:53].decode()
    plan = _plan(max_tokens=200, ignore_eos=True, stop=["#never#", stop])
    found = free.find(stop.encode())
    assert plan.output == free[: found + 3]
    assert (plan.text_length, plan.finish_reason, plan.stop_reason, plan.held_back) == (found, "stop", stop, 6)
    assert _plan(max_tokens=200, ignore_eos=True, stop=stop, min_tokens=100).output_tokens > 99


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": {}}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [1.5]}, "prompt"),
        ({"prompt": [2000]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [1, [2]]}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [1] * 1000}, "input_tokens"),
        ({"prompt": [1] * 990, "max_tokens": 11}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "9"}, "max_tokens"),
        ({"min_tokens": 17}, "min_tokens"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"seed": 1.5}, "seed"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": 1}, "stream_options"),
        ({"stop": [1]}, "stop"),
        ({"n": 2}, "n"),
        ({"echo": True}, "echo"),
        ({"logprobs": 1}, "logprobs"),
    ],
)
def test_a_bad_field_is_refused_by_name(fields: dict[str, object], param: str) -> None:
    error = _refusal(orjson.dumps({"model": "m", "prompt": "hello"} | fields))
    assert (error["code"], error["type"], error["param"]) == (400, "BadRequestError", param)


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'{"a":NaN}', b"\xff"])
def test_what_is_not_a_json_object_is_refused(body: bytes) -> None:
    assert _refusal(body)["code"] == 400


def test_another_model_is_not_found() -> None:
    error = _refusal(b'{"model":"other","prompt":"x"}')
    assert (error["code"], error["type"], error["message"]) == (
        404,
        "NotFoundError",
        "The model `other` does not exist.",
    )


def test_texts_survive_tokenizing_and_detokenizing() -> None:
    answer = tokenize(orjson.dumps({"model": "m", "prompt": "grüße"}), LIMITS)
    tokens = orjson.loads(answer.body)
    assert (tokens["count"], tokens["max_model_len"]) == (7, 1000)
    back = detokenize(orjson.dumps({"model": "m", "tokens": tokens["tokens"]}), LIMITS)
    assert orjson.loads(back.body) == {"prompt": "grüße"}
    assert orjson.loads(detokenize(b'{"tokens":[257,255]}', LIMITS).body) == {"prompt": f"<|{EOS_ID}|>\ufffd"}
    assert tokenize(b'{"prompt":[1]}', LIMITS).status == detokenize(b'{"tokens":"x"}', LIMITS).status == 400
