"""What a step carries, and which tokens are found in the prefix cache."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from images.simulated.prefix_cache import PrefixCache
from images.simulated.scheduler import Scheduler, Sequence, Step
from images.simulated.tokens import hash_blocks

BLOCK = 16


def _sequence(number: int, prompt: int, output: int, beginning: int = 0) -> Sequence:
    """A request whose first `beginning` blocks are those of every other."""
    blocks = (prompt + output) // BLOCK
    hashes = [*range(min(beginning, blocks)), *(number * 10**6 + index for index in range(beginning, blocks))]
    return Sequence(number, prompt, output, hashes, "length", 0)


def _scheduler(capacity: int = 10_000, sequences: int = 4, tokens: int = 100) -> Scheduler:
    return Scheduler(PrefixCache(capacity), sequences, tokens, BLOCK)


def _run(scheduler: Scheduler, limit: int = 100_000) -> list[Step]:
    steps = []
    while (step := scheduler.plan_step()) is not None:
        scheduler.complete_step(step)
        steps.append(step)
        assert len(steps) < limit
    return steps


def test_a_prompt_beyond_the_budget_is_prefilled_in_chunks_and_its_token_comes_with_the_last() -> None:
    scheduler = _scheduler()
    scheduler.add(_sequence(1, 250, 3))
    steps = _run(scheduler)
    assert [step.prefill_tokens for step in steps] == [100, 100, 50, 0, 0]
    assert [len(step.emitting) for step in steps] == [0, 0, 1, 1, 1]
    assert [step.decoding for step in steps] == [0, 0, 0, 1, 1]
    assert [step.context_tokens for step in steps] == [0, 0, 0, 251, 252]


def test_decodes_go_before_prefills_and_waiting_requests_come_in_order() -> None:
    scheduler = _scheduler(sequences=2)
    for number in (1, 2, 3):
        scheduler.add(_sequence(number, 80, 2))
    first = scheduler.plan_step()
    assert first is not None
    assert [(each.number, tokens) for each, tokens in first.parts] == [(1, 80), (2, 20)]
    assert [each.number for each in scheduler.waiting] == [3]
    assert scheduler.complete_step(first) == []
    second = scheduler.plan_step()
    assert second is not None
    assert [(each.number, tokens) for each, tokens in second.parts] == [(1, 1), (2, 60)]
    assert [each.number for each in scheduler.complete_step(second)] == [1]
    third = scheduler.plan_step()
    assert third is not None
    assert [(each.number, tokens) for each, tokens in third.parts] == [(2, 1), (3, 80)]


def test_hits_are_whole_blocks_and_never_the_prompts_last_token() -> None:
    scheduler = _scheduler()
    for prompt, expected in ((160, 0), (160, 144), (161, 160), (159, 144), (16, 0), (17, 16)):
        sequence = _sequence(7, prompt, 1, beginning=10)
        scheduler.add(sequence)
        _run(scheduler)
        assert sequence.cached == expected
    assert scheduler.prefix_queries == 160 + 160 + 161 + 159 + 16 + 17
    assert scheduler.prefix_hits == 144 + 160 + 144 + 16


def test_a_block_that_is_being_filled_in_the_same_step_is_hit() -> None:
    scheduler = _scheduler(tokens=1000)
    one, two = _sequence(1, 100, 1, beginning=6), _sequence(2, 100, 1, beginning=6)
    scheduler.add(one)
    scheduler.add(two)
    assert len(_run(scheduler)) == 1
    assert (one.cached, two.cached) == (0, 96)


def test_generated_tokens_are_found_again_by_a_prompt_that_holds_them() -> None:
    scheduler = _scheduler()
    scheduler.add(_sequence(1, 20, 44))
    _run(scheduler)
    again = _sequence(1, 100, 1)
    scheduler.add(again)
    _run(scheduler)
    # 20 + 44 tokens fill four blocks, but the last token was never computed.
    assert again.cached == 48


def test_the_oldest_idle_blocks_go_first_and_the_end_of_a_request_before_its_beginning() -> None:
    cache = PrefixCache(4)
    for blocks in ([1, 2, 3], [4, 5]):
        cache.acquire(blocks)
        cache.release(blocks)
    assert cache.evictions == 1
    assert cache.count_hits([1, 2, 3], 3) == 2
    assert cache.count_hits([4, 5], 2) == 2


def test_held_blocks_are_not_evicted_and_keep_the_cache_from_being_emptied() -> None:
    cache = PrefixCache(3)
    cache.acquire([1, 2])
    cache.acquire([7])
    cache.release([7])
    cache.acquire([8])
    assert cache.count_hits([1, 2], 2) == 2
    assert cache.count_hits([7], 1) == 0
    assert not cache.forget_idle()
    cache.release([1, 2])
    cache.release([8])
    assert cache.forget_idle()
    assert cache.count_hits([1, 2], 2) == 0


def test_a_request_waits_while_its_blocks_would_not_fit() -> None:
    scheduler = _scheduler(capacity=10)
    one, two = _sequence(1, 100, 4), _sequence(2, 100, 4)
    scheduler.add(one)
    scheduler.add(two)
    step = scheduler.plan_step()
    assert step is not None
    assert scheduler.running == [one]
    scheduler.complete_step(step)
    _run(scheduler)
    assert (one.produced, two.produced) == (4, 4)


def test_an_aborted_request_leaves_nothing_behind() -> None:
    scheduler = _scheduler(sequences=1)
    one, two = _sequence(1, 100, 50), _sequence(2, 100, 50)
    scheduler.add(one)
    scheduler.add(two)
    step = scheduler.plan_step()
    assert step is not None
    scheduler.complete_step(step)
    assert scheduler.usage() > 0
    assert scheduler.abort(one)
    assert scheduler.abort(two)
    assert not scheduler.abort(one)
    assert scheduler.plan_step() is None
    assert scheduler.usage() == 0


@given(
    st.lists(st.tuples(st.integers(1, 400), st.integers(1, 40), st.integers(0, 20)), min_size=1, max_size=20),
    st.integers(4, 120),
)
def test_every_request_gets_all_its_tokens_within_budget_and_batch(
    requests: list[tuple[int, int, int]], budget: int
) -> None:
    scheduler = _scheduler(capacity=60, tokens=budget)
    sequences = [_sequence(index + 1, *request) for index, request in enumerate(requests)]
    for sequence in sequences:
        scheduler.add(sequence)
    steps = _run(scheduler)
    for step in steps:
        assert sum(tokens for _, tokens in step.parts) <= budget
        assert len(step.parts) <= 4
    assert [each.produced for each in sequences] == [output for _, output, _ in requests]
    assert sum(len(step.emitting) for step in steps) == sum(output for _, output, _ in requests)
    assert all(each.cached <= (each.prompt_tokens - 1) // BLOCK * BLOCK for each in sequences)
    assert scheduler.usage() == 0


@given(
    st.lists(st.integers(0, 200_000), max_size=80),
    st.lists(st.integers(0, 200_000), max_size=80),
    st.integers(0, 80),
)
def test_hashes_are_equal_exactly_as_far_as_the_prefixes_are(one: list[int], two: list[int], shared: int) -> None:
    two = one[:shared] + two
    common = 0
    while common < min(len(one), len(two)) // BLOCK and one[: (common + 1) * BLOCK] == two[: (common + 1) * BLOCK]:
        common += 1
    first, second = (hash_blocks(np.array(ids, dtype=np.int64), BLOCK) for ids in (one, two))
    assert (len(first), len(second)) == (len(one) // BLOCK, len(two) // BLOCK)
    assert first[:common] == second[:common]
    assert not set(first[common:]) & set(second[common:])
