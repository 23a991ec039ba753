"""Equal bytes give equal numbers, and bytes of something else give none."""

import pytest

from service.contract.errors import InvalidInput
from service.contract.upload import ServerCounters
from service.ruler.metrics import measure
from service.ruler.rawlog import encode
from service.ruler.recompute import recompute
from service.ruler.validity import judge
from tests.service.ruler.logs import WORKLOAD, good


def test_recomputed_numbers_equal_those_of_the_log_in_memory() -> None:
    raw = encode(good())
    metrics, judgement = recompute(raw, WORKLOAD, ServerCounters(), 16)
    assert metrics == measure(good(), WORKLOAD)
    assert judgement == judge(good(), WORKLOAD, ServerCounters(), 16)
    assert recompute(raw, WORKLOAD, ServerCounters(), 16) == (metrics, judgement)


def test_a_log_of_another_workload_is_refused() -> None:
    other = WORKLOAD.model_copy(update={"output_tokens": 5, "name": "other"})
    with pytest.raises(InvalidInput, match="not of other"):
        recompute(encode(good()), other, ServerCounters(), 16)


def test_a_damaged_log_is_refused() -> None:
    with pytest.raises(InvalidInput, match="damaged"):
        recompute(encode(good())[:-1], WORKLOAD, ServerCounters(), 16)
