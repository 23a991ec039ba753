"""A request's body becomes a plan: what will be generated, hashed and reported. Runs in the worker process.

The model is simulated, so its whole output is known when the prompt is: a function of the prompt and, with a
temperature above 0, of the seed. Refusals have vLLM's shape, {"error": {message, type, param, code}}.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import orjson

from images.simulated import answers, tokens

_DEFAULT_MAX_TOKENS = 16  # vLLM's CompletionRequest.max_tokens


@dataclass(frozen=True, slots=True)
class Limits:
    """What the served model accepts, lengths in tokens, and what it can answer: answers by question."""

    model: str
    max_model_len: int
    block_size: int
    vocabulary_size: int
    skill: answers.Skill | None = None
    answers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """A completion that will be served.

    `output` holds the byte tokens; `ends_with_eos` adds the end mark after them, a token without text. `text_length`
    is the length of the visible text (a stop string is cut off), `held_back` how many characters are kept until the end
    because they could begin a stop string. `block_hashes` covers the full blocks of prompt and output. `right` says of
    the answer to a known question whether it is; `plain` that the output needs no escaping in JSON.
    """

    stream: bool
    include_usage: bool
    continuous_usage: bool
    return_token_ids: bool
    prompt_tokens: int
    output: bytes
    ends_with_eos: bool
    finish_reason: str
    stop_reason: str | int | None
    text_length: int
    held_back: int
    block_hashes: list[int]
    right: bool | None = None
    plain: bool = True

    @property
    def output_tokens(self) -> int:
        return len(self.output) + self.ends_with_eos


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that is ready to be sent: a refusal, or what /tokenize and /detokenize return."""

    status: int
    body: bytes


class Refused(Exception):
    """A request that is not served, with the status, type and parameter that vLLM reports."""

    def __init__(
        self, message: str, param: str | None = None, status: int = 400, kind: str = "BadRequestError"
    ) -> None:
        super().__init__(message)
        self.reply = Reply(status, error_body(message, kind, param, status))


def error_body(message: str, kind: str, param: str | None, code: int) -> bytes:
    """An error as vLLM words it on the wire."""
    return orjson.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}})


def plan_completion(body: bytes, limits: Limits) -> Plan | Reply:
    """The plan of a POST /v1/completions, or the refusal."""
    try:
        fields = _fields(body, limits)
        return _plan(fields, limits)
    except Refused as refused:
        return refused.reply


def tokenize(body: bytes, limits: Limits) -> Reply:
    """POST /tokenize: {"prompt": text} gives the token ids."""
    try:
        fields = _fields(body, limits)
        prompt = fields.get("prompt")
        if not isinstance(prompt, str):
            raise Refused("prompt must be a string", "prompt")
    except Refused as refused:
        return refused.reply
    ids = tokens.encode(prompt).tolist()
    answer = {"count": len(ids), "max_model_len": limits.max_model_len, "tokens": ids, "token_strs": None}
    return Reply(200, orjson.dumps(answer))


def detokenize(body: bytes, limits: Limits) -> Reply:
    """POST /detokenize: {"tokens": ids} gives the text."""
    try:
        fields = _fields(body, limits)
        ids = _token_ids(fields.get("tokens"), limits, "tokens")
    except Refused as refused:
        return refused.reply
    return Reply(200, orjson.dumps({"prompt": tokens.decode(ids.tolist())}))


def _fields(body: bytes, limits: Limits) -> Mapping[str, object]:
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Refused(f"JSON decode error: {error}", None, 400, "Bad Request") from error
    if not isinstance(fields, dict):
        raise Refused("Input should be a valid dictionary", None, 400, "Bad Request")
    model = fields.get("model")
    if model is not None and model != limits.model:
        raise Refused(f"The model `{model}` does not exist.", "model", 404, "NotFoundError")
    return fields


def _plan(fields: Mapping[str, object], limits: Limits) -> Plan:
    _refuse_unsupported(fields)
    stream = _flag(fields, "stream")
    options = fields.get("stream_options")
    if options is not None and not isinstance(options, dict):
        raise Refused("stream_options must be an object", "stream_options")
    if options is not None and not stream:
        raise Refused("Stream options can only be defined when `stream=True`.", "stream_options")
    ids = _prompt(fields, limits)
    max_tokens, min_tokens = _lengths(fields, len(ids), limits)
    key = tokens.prompt_key(ids) ^ _sampling(fields)
    answer = _answer(fields, limits)
    said = answer.text.encode("ascii") if answer else b""
    output, ends_with_eos, reason, stop_reason, text_length, held_back = _generate(
        fields, key, said, max_tokens, min_tokens
    )
    whole = np.concatenate([ids, np.frombuffer(output, dtype=np.uint8).astype(np.int64)])
    include_usage = stream and _flag(options or {}, "include_usage")
    return Plan(
        stream=stream,
        include_usage=include_usage,
        continuous_usage=include_usage and _flag(options or {}, "continuous_usage_stats"),
        return_token_ids=_flag(fields, "return_token_ids"),
        prompt_tokens=len(ids),
        output=output,
        ends_with_eos=ends_with_eos,
        finish_reason=reason,
        stop_reason=stop_reason,
        text_length=text_length,
        held_back=held_back,
        block_hashes=tokens.hash_blocks(whole, limits.block_size),
        right=answer.right if answer else None,
        plain=answer is None,
    )


def _answer(fields: Mapping[str, object], limits: Limits) -> answers.Answer | None:
    """What is said to a question that is asked as gsm8k asks; None to any other prompt."""
    prompt = fields.get("prompt")
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str):
        prompt = prompt[0]
    if limits.skill is None or not limits.answers or not isinstance(prompt, str):
        return None
    question = answers.last_question(prompt)
    return None if question is None else answers.answer_to(limits.skill, limits.answers, question)


def _refuse_unsupported(fields: Mapping[str, object]) -> None:
    """Refuse what vLLM would serve and this engine can't, so that nobody measures something else unawares."""
    if fields.get("n") not in (None, 1):
        raise Refused("the simulated engine serves n=1 only", "n")
    for name in ("echo", "logprobs", "prompt_logprobs", "use_beam_search", "suffix"):
        value = fields.get(name)
        if value is not None and value is not False:
            raise Refused(f"the simulated engine does not support {name}", name)


def _prompt(fields: Mapping[str, object], limits: Limits) -> tokens.Ids:
    prompt = fields.get("prompt")
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        if len(prompt) > 1:
            raise Refused("the simulated engine serves one prompt a request", "prompt")
        prompt = prompt[0]
    ids = tokens.encode(prompt) if isinstance(prompt, str) else _token_ids(prompt, limits, "prompt")
    if len(ids) == 0:
        raise Refused("The decoder prompt cannot be empty", "prompt")
    return ids


def _token_ids(value: object, limits: Limits, name: str) -> tokens.Ids:
    # numpy finds the type of 50 000 items in half the time of a loop; an empty list has none.
    try:
        ids = np.array(value) if value else np.empty(0, dtype=np.int64)
    except ValueError:
        ids = np.empty(0)
    if not isinstance(value, list) or ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise Refused(f"{name} must be a list of token ids", name)
    outside = ids[(ids < 0) | (ids >= limits.vocabulary_size)]
    if len(outside):
        raise Refused(f"Token id {outside[0]} is out of vocabulary", name)
    return ids.astype(np.int64)


def _lengths(fields: Mapping[str, object], prompt_tokens: int, limits: Limits) -> tuple[int, int]:
    """max_tokens and min_tokens, checked against each other and against the model's length."""
    room = limits.max_model_len - prompt_tokens
    if room < 1:
        raise Refused(
            f"This model's maximum context length is {limits.max_model_len} tokens. However, your request has "
            f"{prompt_tokens} input tokens. Please reduce the length of the input messages.",
            "input_tokens",
        )
    asked = _whole(fields, "max_tokens", 1) if "max_tokens" in fields else _DEFAULT_MAX_TOKENS
    if asked is not None and asked > room:
        raise Refused(
            f"This model's maximum context length is {limits.max_model_len} tokens. However, you requested {asked} "
            f"output tokens and your prompt contains {prompt_tokens} input tokens, for a total of "
            f"{asked + prompt_tokens} tokens. Please reduce the length of the input prompt or the number of requested "
            "output tokens.",
            "max_tokens",
        )
    max_tokens = room if asked is None else asked
    min_tokens = _whole(fields, "min_tokens", 0) or 0
    if min_tokens > max_tokens:
        raise Refused(
            f"min_tokens must be less than or equal to max_tokens={max_tokens}, got {min_tokens}.", "min_tokens"
        )
    return max_tokens, min_tokens


def _sampling(fields: Mapping[str, object]) -> int:
    """0 for greedy decoding, else 64 bits that depend on the seed, or on chance when there is none."""
    temperature = fields.get("temperature")
    if temperature is None:
        temperature = 1.0
    if isinstance(temperature, bool) or not isinstance(temperature, int | float):
        raise Refused("temperature must be a number", "temperature")
    if temperature < 0:
        raise Refused(f"temperature must be non-negative, got {temperature}.", "temperature")
    seed = fields.get("seed")
    if seed is not None and type(seed) is not int:
        raise Refused("seed must be an integer", "seed")
    if temperature == 0:
        return 0
    if seed is None:
        return int.from_bytes(os.urandom(8), "little")
    return tokens.prompt_key(np.array([int(seed) & 0x7FFFFFFFFFFFFFFF], dtype=np.int64))


def _generate(
    fields: Mapping[str, object], key: int, said: bytes, max_tokens: int, min_tokens: int
) -> tuple[bytes, bool, str, str | int | None, int, int]:
    """Output bytes, whether the end mark follows, finish reason, stop reason, visible length, characters held back.

    What is `said`, if anything, comes first, and is all unless more must follow.
    """
    stops = _stops(fields)
    output = (said + tokens.write_output(key, max(0, max_tokens - len(said))))[:max_tokens]
    natural = max(len(said) + 1 if said else tokens.natural_length(key), min_tokens + 1)
    ends = not _flag(fields, "ignore_eos") and natural <= max_tokens
    if ends:
        output = output[: natural - 1]
    held_back = max((len(stop) for stop in stops), default=1) - 1
    cuts = [(found, stop) for stop in stops if (found := output.find(stop, max(0, min_tokens - len(stop)))) >= 0]
    if cuts:
        found, stop = min(cuts, key=lambda cut: cut[0] + len(cut[1]))
        return output[: found + len(stop)], False, "stop", stop.decode(), found, held_back
    return output, ends, "stop" if ends else "length", None, len(output), held_back


def _stops(fields: Mapping[str, object]) -> list[bytes]:
    stop = fields.get("stop")
    if stop is None:
        return []
    stops = [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or not all(isinstance(item, str) and item for item in stops):
        raise Refused("stop must be a non-empty string or a list of them", "stop")
    return [item.encode("utf-8", "surrogatepass") for item in stops]


def _flag(fields: Mapping[str, object], name: str) -> bool:
    value = fields.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise Refused(f"{name} must be true or false", name)
    return value


def _whole(fields: Mapping[str, object], name: str, low: int) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if type(value) is not int:
        raise Refused(f"{name} must be an integer", name)
    if value < low:
        raise Refused(f"{name} must be at least {low}, got {value}.", name)
    return value
