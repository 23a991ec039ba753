"""Every code is given for what it stands for, with the number seen, and for nothing else."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.contract.upload import ServerCounters
from service.ruler.rawlog import ClientFigures, CountedBy, Outcome, Phase, RawLog, Role, Usage
from service.ruler.validity import RULES, Judgement, Validity, expected_hits, judge
from tests.service.ruler.logs import WORKLOAD, good, log, request

BLOCK = 16
RIGHT = ServerCounters(
    prompt_tokens=192, generation_tokens=8, prefix_cache_queries=192, prefix_cache_hits=128, preemptions=0
)


def verdict(made: RawLog, counters: ServerCounters = RIGHT, block: int = BLOCK) -> Judgement:
    return judge(made, WORKLOAD, counters, block)


def with_second(**changes: Any) -> RawLog:
    at_ms = changes.pop("at_ms", [11, 13, 15, 17])
    return log([request(0, 0, [10, 12, 14, 16]), request(1, 1, at_ms, **changes)])


def usage(**changes: int | None) -> Usage:
    return Usage(**({"prompt": 96, "completion": 4, "cached": 64, "continuous": 4} | changes))


def test_a_good_log_is_valid_without_a_reason() -> None:
    assert verdict(good()) == Judgement(validity=Validity.VALID)


def test_unknown_counters_and_usage_lead_to_no_claim() -> None:
    made = log([request(n, n, [10 + n, 12, 14, 16], usage=Usage()) for n in range(2)])
    assert verdict(made, ServerCounters()).validity is Validity.VALID


@pytest.mark.parametrize(
    ("changes", "code", "says"),
    [
        ({"outcome": Outcome.HTTP_ERROR, "error": "HTTP 500: oops"}, "server_error", "HTTP 500: oops"),
        ({"outcome": Outcome.SERVER_ERROR, "at_ms": [11, 13]}, "server_error", "after 2 tokens"),
        ({"outcome": Outcome.BAD_RESPONSE}, "server_error", "bad_response"),
        ({"outcome": Outcome.TRUNCATED}, "truncated", "measured 1"),
        ({"outcome": Outcome.RESET}, "reset", "measured 1"),
        ({"outcome": Outcome.STALLED}, "stalled", "measured 1"),
        ({"outcome": Outcome.DEADLINE}, "deadline", "measured 1"),
        ({"outcome": Outcome.UNREACHABLE, "at_ms": []}, "unreachable", "measured 1"),
        ({"finish_reason": "abort", "at_ms": [11, 13]}, "aborted", "'abort' after 2 tokens"),
        ({"finish_reason": "stop", "at_ms": [11, 13]}, "short_output", "2 tokens, asked were 4"),
        ({"finish_reason": "stop"}, "short_output", "finish_reason 'stop'"),
        ({"finish_reason": None}, "short_output", "finish_reason None"),
        ({"at_ms": [11, 13, 15, 16, 17]}, "long_output", "5 tokens, asked were 4"),
        ({"usage": usage(completion=1024)}, "count_mismatch", "final usage says 1024"),
        ({"usage": usage(continuous=3)}, "count_mismatch", "continuous usage 3"),
        ({"usage": usage(prompt=95)}, "prompt_len_mismatch", "95 prompt tokens, sent were 96"),
        ({"usage": usage(cached=32)}, "prefix_hit_low", "32 cached tokens, theory says 64"),
        ({"usage": usage(cached=96)}, "prefix_hit_high", "96 cached tokens, theory says 64"),
    ],
)
def test_a_bad_request_makes_the_log_invalid(changes: dict[str, Any], code: str, says: str) -> None:
    got = verdict(with_second(**changes), ServerCounters())
    assert got.validity is Validity.INVALID
    [reason] = [r for r in got.reasons if r.code == code]
    assert says in reason.message


@pytest.mark.parametrize(
    ("counters", "code", "validity"),
    [
        ({"generation_tokens": 7}, "count_mismatch", Validity.INVALID),
        ({"prompt_tokens": 190}, "metrics_mismatch", Validity.SUSPECT),
        ({"prefix_cache_hits": 95}, "prefix_hit_low", Validity.INVALID),
        ({"prefix_cache_hits": 161}, "prefix_hit_high", Validity.INVALID),
        ({"preemptions": 1}, "preempted", Validity.SUSPECT),
    ],
)
def test_counters_are_held_against_what_was_sent(counters: dict[str, float], code: str, validity: Validity) -> None:
    got = verdict(good(), RIGHT.model_copy(update=counters))
    assert [r.code for r in got.reasons] == [code]
    assert got.validity is validity


def test_a_field_that_others_have_is_zero_where_it_is_missing() -> None:
    # vLLM 0.18 sends no prompt_tokens_details where nothing was cached.
    [reason] = verdict(with_second(usage=usage(cached=None)), ServerCounters()).reasons
    assert (reason.code, "0 cached tokens, theory says 64" in reason.message) == ("prefix_hit_low", True)
    nobody = log([request(n, n, [10 + n, 12, 14, 16], usage=usage(cached=None)) for n in range(2)])
    assert verdict(nobody, ServerCounters()).validity is Validity.VALID


@pytest.mark.parametrize("hits", [96, 128, 160])
def test_one_block_of_slack_per_request_is_allowed(hits: float) -> None:
    assert verdict(good(), RIGHT.model_copy(update={"prefix_cache_hits": hits})).validity is Validity.VALID


def test_lookups_that_were_counted_again_do_not_pass_for_hits() -> None:
    again = RIGHT.model_copy(update={"prefix_cache_queries": 384, "prefix_cache_hits": 256})
    assert verdict(good(), again).validity is Validity.VALID


def test_tokens_nobody_counted_are_suspect() -> None:
    made = with_second(counted_by=CountedBy.EVENTS, usage=Usage())
    got = verdict(made)
    assert [r.code for r in got.reasons] == ["count_unproven"]
    assert got.validity is Validity.SUSPECT


def test_too_few_requests_and_a_concurrency_never_reached_are_invalid() -> None:
    codes = {r.code for r in verdict(log([request(0, 0, [10, 12, 14, 16])]), ServerCounters()).reasons}
    assert codes == {"too_few", "not_steady"}
    late = log([request(0, 0, [10, 12, 14, 16]), request(1, 900, [910, 912, 914, 916])])
    assert [r.code for r in verdict(late).reasons] == ["not_steady"]


def test_a_batch_that_never_decodes_whole_is_suspect() -> None:
    made = log([request(0, 0, [10, 12, 14, 16]), request(1, 1, [21, 22, 23, 24])])
    got = verdict(made)
    assert ([r.code for r in got.reasons], got.validity) == (["not_full_batch"], Validity.SUSPECT)


def test_coalesced_events_are_suspect_with_their_share() -> None:
    got = verdict(with_second(shared=np.array([0, 1, 1, 0])))
    [reason] = got.reasons
    assert reason.code == "coalesced"
    assert "2 of 8 events (25.0%)" in reason.message


def test_a_lagging_client_is_suspect() -> None:
    made = good()
    lagging = RawLog(made.header.model_copy(update={"client": ClientFigures(loop_lag_p99_ms=2.5)}), made.requests)
    [reason] = verdict(lagging).reasons
    assert (reason.code, reason.message) == ("client_lag", "loop lag p99 2.50 ms; the limit is 2 ms")


def test_invalid_reasons_come_first_and_decide() -> None:
    made = with_second(shared=np.array([0, 1, 1, 0]), usage=usage(completion=9))
    got = verdict(made)
    assert [r.code for r in got.reasons] == ["count_mismatch", "coalesced"]
    assert got.validity is Validity.INVALID


def test_the_warm_log_proves_the_prefix_by_the_second_priming_request() -> None:
    def warm(cached: int) -> RawLog:
        first = Usage(prompt=64, completion=2, cached=0, continuous=2)
        again = Usage(prompt=64, completion=2, cached=cached, continuous=2)
        primes = [
            request(n, 20 * n, [20 * n + 5, 20 * n + 6], role=Role.PRIME, prompt_tokens=64, usage=u)
            for n, u in enumerate((first, again))
        ]
        warms = [request(n, 50, [60, 61, 62, 63], role=Role.WARM) for n in range(2)]
        return log([*primes, *warms], phase=Phase.WARM)

    assert verdict(warm(48), ServerCounters()).validity is Validity.VALID
    [reason] = verdict(warm(0), ServerCounters()).reasons
    assert reason.code == "prefix_hit_low"
    assert "prime 1" in reason.message


@given(st.integers(1, 300), st.integers(1, 300), st.sampled_from([1, 2, 16, 128]))
def test_the_theory_of_hits_is_whole_blocks_without_the_last_token(prompt: int, prefix: int, block: int) -> None:
    hits = expected_hits(prompt, prefix, block)
    cacheable = [end for end in range(0, 301, block) if end <= prefix and end < prompt]
    assert hits == max(cacheable)


def test_every_rule_says_what_it_means() -> None:
    assert all(rule.meaning for rule in RULES.values())
