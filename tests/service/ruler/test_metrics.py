"""Metrics against figures worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.contract.errors import UnknownMetric
from service.contract.workloads import Workload
from service.ruler.metrics import METRICS, Metrics, describe, gaps_ms, info, measure, ttft_us
from service.ruler.rawlog import Outcome, Phase, Role
from tests.service.ruler.logs import WORKLOAD, good, log, request


def test_two_overlapping_requests_by_hand() -> None:
    # a: sent 0, tokens 10 12 14 20;  b: sent 1, tokens 11 14 17 20; both decode from 11 to 20
    made = log([request(0, 0, [10, 12, 14, 20]), request(1, 1, [11, 14, 17, 20])])
    got = measure(made, WORKLOAD)
    assert got.tpot_p50_ms == pytest.approx((10 / 3 + 3) / 2)
    assert got.tpot_p90_ms == pytest.approx(3 + 0.9 / 3)
    assert got.itl_p50_ms == pytest.approx(3)  # 2 2 3 3 3 6
    assert got.itl_mean_ms == pytest.approx(19 / 6)
    assert got.itl_p99_ms == pytest.approx(3 + 0.95 * 3)
    assert got.itl_steady_p50_ms == pytest.approx(3)  # without the gap from 10 to 12: 2 3 3 3 6
    assert got.ttft_p50_ms == pytest.approx(10)
    assert got.ttft_p90_ms == pytest.approx(10)
    assert got.e2el_p50_ms == pytest.approx(19.5)
    # both under way from 1 to 20, 8 tokens in it
    assert got.output_tok_s == pytest.approx(8 / 0.019)
    assert got.output_tok_s_run == pytest.approx(8 / 0.020)
    assert [got.requests, got.output_tokens, got.duration_s] == pytest.approx([2, 8, 0.020])
    assert got.ttft_cold_prefix_ms is None


def test_a_chunk_of_k_tokens_counts_as_k_gaps() -> None:
    made = log([request(0, 0, [10, 18, 26], tokens=[1, 4, 2]), request(1, 0, [10, 18, 26], tokens=[1, 4, 2])])
    got = measure(made, WORKLOAD)
    assert gaps_ms(made.requests[0]).tolist() == [2, 2, 2, 2, 4, 4]
    assert got.itl_p50_ms == pytest.approx(2)
    assert got.itl_mean_ms == pytest.approx(16 / 6)
    assert got.tpot_p50_ms == pytest.approx(16 / 6)


def test_the_steady_window_leaves_out_ramp_and_tail_and_bridges_a_turnaround() -> None:
    # slot one: 0..100, then 101..200 on the same connection; slot two: 50..250; both busy from 50 to 200
    workload = WORKLOAD.model_copy(update={"requests": 3})
    made = log(
        [request(0, 0, [60, 100]), request(1, 50, [150, 250]), request(2, 101, [120, 160, 200])], workload=workload
    )
    got = measure(made, workload)
    assert got.output_tok_s == pytest.approx(6 / 0.150)  # all but the token at 250
    assert got.output_tok_s_run == pytest.approx(7 / 0.250)


def test_without_the_concurrency_there_is_no_steady_figure() -> None:
    made = log([request(0, 0, [10, 12]), request(1, 500, [510, 512])])
    got = measure(made, WORKLOAD)
    assert got.output_tok_s is None
    assert got.itl_steady_p50_ms is None
    assert got.itl_p50_ms == pytest.approx(2)


def test_failed_requests_are_not_scored() -> None:
    bad = request(1, 0, [10, 90], outcome=Outcome.TRUNCATED)
    got = measure(log([request(0, 0, [10, 12, 14, 16]), bad]), WORKLOAD)
    assert [got.requests, got.output_tokens, got.itl_p99_ms] == pytest.approx([1, 4, 2])


def test_the_cold_prefix_comes_from_the_first_priming_request_of_a_warm_log() -> None:
    made = log(
        [
            request(0, 0, [100, 101], role=Role.PRIME),
            request(1, 110, [112, 113], role=Role.PRIME),
            request(0, 120, [125, 130], role=Role.WARM),
        ],
        phase=Phase.WARM,
    )
    got = measure(made, WORKLOAD)
    assert got.ttft_cold_prefix_ms == pytest.approx(100)
    assert [got.requests, got.ttft_p50_ms, got.itl_p50_ms] == pytest.approx([1, 5, 5])


def test_an_empty_log_has_no_figures() -> None:
    assert measure(log([]), WORKLOAD) == Metrics()


event = st.tuples(st.integers(0, 50_000), st.integers(1, 5))


@given(st.integers(0, 10_000), st.lists(event, min_size=1, max_size=40))
def test_ttft_and_gaps_add_up_to_the_last_token(send: int, events: list[tuple[int, int]]) -> None:
    at, stamps = send, []
    for gap, _ in events:
        at += gap
        stamps.append(at / 1000)
    made = request(0, send / 1000, stamps, tokens=[k for _, k in events])
    assert len(gaps_ms(made)) == made.output_tokens - events[0][1]
    assert ttft_us(made) / 1000 + gaps_ms(made).sum() == pytest.approx((at - send) / 1000)


def test_the_registry_names_every_field_and_only_those() -> None:
    assert list(METRICS) == list(Metrics.model_fields)
    for name, about in METRICS.items():
        unit = {"ms": "ms", "tok/s": "_tok_s", "s": "_s"}.get(about.unit, "")
        assert unit in name
        assert f"| `{name}` | {about.label} |" in describe()


def test_an_unknown_metric_is_refused_with_those_that_exist() -> None:
    with pytest.raises(UnknownMetric, match=r"'tpot'.*tpot_p50_ms, .*duration_s"):
        info("tpot")
    assert measure(good(), WORKLOAD).value("tpot_p50_ms") == pytest.approx(2)
    with pytest.raises(UnknownMetric):
        Metrics().value("model_fields")


def test_metrics_survive_json() -> None:
    got = measure(good(), Workload.model_validate_json(WORKLOAD.model_dump_json()))
    assert Metrics.model_validate_json(got.model_dump_json()) == got
