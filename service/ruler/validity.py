"""Whether a log may be used: no number without a verdict on what it was computed from.

``invalid`` is shown and never used; ``suspect`` is used and marked. Every reason names what was seen and the limit.
Counters of the server that are unknown lead to no claim. The theory of prefix-cache hits is vLLM's: full blocks of the
shared prefix, and never the prompt's last token, which is always computed again (v1/core/kv_cache_manager.py).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from pydantic import Field

from service.contract.builds import Wire
from service.contract.upload import ServerCounters
from service.contract.workloads import Workload
from service.ruler.metrics import decoding, scored, under_way
from service.ruler.rawlog import CountedBy, Outcome, Phase, RawLog, RequestRecord, Role

PRIME_OUTPUT_TOKENS = 2
"""Output tokens of a priming request: the first proves the prefill, the second that the server decodes."""


class Validity(StrEnum):
    """May it be used?"""

    VALID = "valid"
    SUSPECT = "suspect"
    INVALID = "invalid"


class Reason(Wire):
    """Why a log is not simply valid."""

    code: str = Field(pattern=r"^[a-z][a-z_]*$")
    message: str


class Judgement(Wire):
    """The verdict with its reasons; no reason means valid."""

    validity: Validity
    reasons: list[Reason] = []


class Rule(NamedTuple):
    """What a code means for the log, the limit that it is held against (None: any occurrence), and its meaning."""

    validity: Validity
    limit: float | None
    meaning: str


_INVALID, _SUSPECT = Validity.INVALID, Validity.SUSPECT

RULES = MappingProxyType(
    {
        "server_error": Rule(_INVALID, None, "the server answered a request with an error, or with what is no answer"),
        "truncated": Rule(_INVALID, None, "a stream was closed before its end"),
        "reset": Rule(_INVALID, None, "a connection was reset"),
        "stalled": Rule(_INVALID, None, "a stream gave no byte for the plan's stall_s"),
        "unreachable": Rule(_INVALID, None, "no connection could be made"),
        "deadline": Rule(_INVALID, None, "the deadline passed with requests under way"),
        "aborted": Rule(_INVALID, None, "the server aborted a request"),
        "short_output": Rule(_INVALID, None, "a request got fewer tokens than asked for, or ended for another reason"),
        "long_output": Rule(_INVALID, None, "a request got more tokens than asked for"),
        "count_mismatch": Rule(_INVALID, None, "token ids, usage and the server's counter disagree on output tokens"),
        "count_unproven": Rule(_SUSPECT, None, "neither token ids nor usage: one token an event is assumed"),
        "prompt_len_mismatch": Rule(_INVALID, None, "the server saw a prompt of another length than was sent"),
        "prefix_hit_low": Rule(_INVALID, 1.0, "fewer prefix-cache hits than theory; limit in blocks per request"),
        "prefix_hit_high": Rule(_INVALID, 1.0, "more prefix-cache hits than theory; limit in blocks per request"),
        "preempted": Rule(_SUSPECT, 0.0, "the server preempted requests; limit in preemptions"),
        "too_few": Rule(_INVALID, None, "fewer requests ended than the workload has"),
        "not_steady": Rule(_INVALID, None, "the workload's concurrency was never under way at once"),
        "not_full_batch": Rule(_SUSPECT, None, "never were that many requests decoding at once"),
        "coalesced": Rule(_SUSPECT, 0.01, "events that came in one read with the one before; limit as a fraction"),
        "client_lag": Rule(_SUSPECT, 2.0, "99th percentile of the load generator's loop lag; limit in ms"),
        "metrics_mismatch": Rule(_SUSPECT, None, "the server's counter of prompt tokens disagrees with what was sent"),
    }
)
"""Every code, what it means for a log, and its limit: the one table."""

_OUTCOME_CODES = MappingProxyType(
    {
        Outcome.HTTP_ERROR: "server_error",
        Outcome.SERVER_ERROR: "server_error",
        Outcome.BAD_RESPONSE: "server_error",
        Outcome.TRUNCATED: "truncated",
        Outcome.RESET: "reset",
        Outcome.STALLED: "stalled",
        Outcome.DEADLINE: "deadline",
        Outcome.UNREACHABLE: "unreachable",
    }
)


def judge(log: RawLog, workload: Workload, counters: ServerCounters, block_size: int) -> Judgement:
    """Return whether a log of this workload may be used, with every reason against it, worst first.

    ``counters`` are the server's own over exactly the log's scored requests; ``block_size`` is its prefix-cache block
    in tokens.
    """
    reasons = list(_reasons(log, workload, counters, block_size))
    worst = {RULES[reason.code].validity for reason in reasons}
    verdict = _INVALID if _INVALID in worst else _SUSPECT if worst else Validity.VALID
    return Judgement(validity=verdict, reasons=sorted(reasons, key=lambda r: RULES[r.code].validity is not _INVALID))


def expected_hits(prompt_tokens: int, prefix_tokens: int, block_size: int) -> int:
    """Return the tokens of a prompt that a server which has seen the prefix finds in its cache: whole blocks of the
    shared prefix, without the prompt's last token."""
    return min(prefix_tokens, prompt_tokens - 1) // block_size * block_size


def _reasons(log: RawLog, workload: Workload, counters: ServerCounters, block_size: int) -> Iterator[Reason]:
    everyone = [r for r in log.requests if r.role is not Role.FILLER]
    requests = scored(log)
    ended = [r for r in requests if r.outcome is Outcome.OK]
    yield from _wire_reasons(everyone)
    yield from _content_reasons(everyone, workload)
    yield from _load_reasons(log, workload, len(ended))
    yield from _hit_reasons([r for r in everyone if (r.role, r.index) != (Role.PRIME, 0)], workload, block_size)
    if requests and len(ended) == len(requests) == len(log.requests):
        yield from _counter_reasons(requests, workload, counters, block_size)
    if counters.preemptions is not None and counters.preemptions > _limit("preempted"):
        yield _reason("preempted", f"{counters.preemptions:g} preemptions; allowed are {_limit('preempted'):g}")
    lag = log.header.client.loop_lag_p99_ms
    if lag > _limit("client_lag"):
        yield _reason("client_lag", f"loop lag p99 {lag:.2f} ms; the limit is {_limit('client_lag'):g} ms")


def _wire_reasons(requests: Sequence[RequestRecord]) -> Iterator[Reason]:
    for outcome, code in _OUTCOME_CODES.items():
        yield from _each(
            code,
            [r for r in requests if r.outcome is outcome],
            lambda r: f"{r.outcome} after {r.output_tokens} tokens" + (f": {r.error}" if r.error else ""),
        )


def _content_reasons(requests: Sequence[RequestRecord], workload: Workload) -> Iterator[Reason]:
    ok = [r for r in requests if r.outcome is Outcome.OK]
    aborted = [r for r in ok if r.finish_reason in ("abort", "error")]
    whole = [r for r in ok if r not in aborted]
    yield from _each("aborted", aborted, lambda r: f"finish_reason {r.finish_reason!r} after {r.output_tokens} tokens")
    yield from _each(
        "short_output",
        [r for r in whole if r.output_tokens < asked(r, workload) or r.finish_reason != "length"],
        lambda r: f"{r.output_tokens} tokens, asked were {asked(r, workload)}; finish_reason {r.finish_reason!r}",
    )
    yield from _each(
        "long_output",
        [r for r in whole if r.output_tokens > asked(r, workload)],
        lambda r: f"{r.output_tokens} tokens, asked were {asked(r, workload)}",
    )
    yield from _each(
        "count_mismatch",
        [r for r in ok if not {r.usage.completion, r.usage.continuous} <= {None, r.output_tokens}],
        lambda r: (
            f"{r.output_tokens} tokens by {r.counted_by}; final usage says {r.usage.completion}, "
            f"continuous usage {r.usage.continuous}"
        ),
    )
    yield from _each(
        "count_unproven",
        [r for r in ok if r.counted_by is CountedBy.EVENTS and r.usage.completion is None],
        lambda r: f"{r.output_tokens} events, and neither token ids nor usage",
    )
    yield from _each(
        "prompt_len_mismatch",
        [r for r in ok if r.usage.prompt not in (None, r.prompt_tokens)],
        lambda r: f"usage says {r.usage.prompt} prompt tokens, sent were {r.prompt_tokens}",
    )


def _load_reasons(log: RawLog, workload: Workload, ended: int) -> Iterator[Reason]:
    wanted = workload.requests if log.header.phase is Phase.MEASURE else workload.warmup_requests
    if ended < wanted:
        yield _reason("too_few", f"{ended} requests ended well; the workload has {wanted}")
    level = min(workload.concurrency, wanted)
    if not under_way(log, level):
        yield _reason("not_steady", f"never were {level} requests under way at once")
    elif not decoding(log, level):
        yield _reason("not_full_batch", f"never were {level} requests decoding at once")
    events = sum(len(r.event_us) for r in log.requests)
    shared = sum(int(r.shared.sum()) for r in log.requests)
    if shared > _limit("coalesced") * events:
        yield _reason(
            "coalesced",
            f"{shared} of {events} events ({shared / events:.1%}) shared a read with the one before; "
            f"the limit is {_limit('coalesced'):.0%}",
        )


def _hit_reasons(requests: Sequence[RequestRecord], workload: Workload, block: int) -> Iterator[Reason]:
    ok = [r for r in requests if r.outcome is Outcome.OK]
    # vLLM 0.18 leaves the field out where it is 0: once one request has it, a final usage without it means 0.
    told = any(r.usage.cached is not None for r in ok)
    known = [r for r in ok if r.usage.cached is not None or (told and r.usage.completion is not None)]

    def theory(request: RequestRecord) -> int:
        return expected_hits(request.prompt_tokens, workload.prefix_tokens, block)

    def excess(request: RequestRecord) -> int:
        return (request.usage.cached or 0) - theory(request)

    def say(r: RequestRecord) -> str:
        return f"{r.usage.cached or 0} cached tokens, theory says {theory(r)}; one block of {block} is allowed"

    yield from _each("prefix_hit_low", [r for r in known if excess(r) < -_limit("prefix_hit_low") * block], say)
    yield from _each("prefix_hit_high", [r for r in known if excess(r) > _limit("prefix_hit_high") * block], say)


def _counter_reasons(
    requests: Sequence[RequestRecord], workload: Workload, counters: ServerCounters, block: int
) -> Iterator[Reason]:
    sent = sum(r.prompt_tokens for r in requests)
    received = sum(r.output_tokens for r in requests)
    if counters.generation_tokens is not None and counters.generation_tokens != received:
        yield _reason(
            "count_mismatch", f"the server counted {counters.generation_tokens:.0f} output tokens; {received} arrived"
        )
    if counters.prompt_tokens is not None and counters.prompt_tokens != sent:
        yield _reason(
            "metrics_mismatch", f"the server counted {counters.prompt_tokens:.0f} prompt tokens; {sent} were sent"
        )
    if counters.prefix_cache_hits is None or not counters.prefix_cache_queries:
        return
    # A request that waits for room is looked up, and counted, once in every step that it waits: only the share tells.
    hits = counters.prefix_cache_hits * sent / counters.prefix_cache_queries
    theory = sum(expected_hits(r.prompt_tokens, workload.prefix_tokens, block) for r in requests)
    message = (
        f"{hits:.0f} tokens by the server's counters, theory says {theory}; one block of {block} a request is allowed"
    )
    if hits < theory - _limit("prefix_hit_low") * block * len(requests):
        yield _reason("prefix_hit_low", message)
    if hits > theory + _limit("prefix_hit_high") * block * len(requests):
        yield _reason("prefix_hit_high", message)


def asked(request: RequestRecord, workload: Workload) -> int:
    """Return the output tokens that a request asks for: priming needs no more than two."""
    return PRIME_OUTPUT_TOKENS if request.role is Role.PRIME else workload.output_tokens


def _each(code: str, requests: Iterable[RequestRecord], say: Callable[[RequestRecord], str]) -> Iterator[Reason]:
    hit = list(requests)
    if hit:
        noun = "request" if len(hit) == 1 else "requests"
        yield _reason(code, f"{len(hit)} {noun}, such as {hit[0].role} {hit[0].index}: {say(hit[0])}")


def _reason(code: str, message: str) -> Reason:
    return Reason(code=code, message=message)


def _limit(code: str) -> float:
    limit = RULES[code].limit
    if limit is None:
        raise KeyError(f"{code} has no limit")
    return limit
