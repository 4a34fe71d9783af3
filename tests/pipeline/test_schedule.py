from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.pipeline.schedule import BlockSchedule, OneChunk, Portions, UpstreamSchedule

prompts = st.integers(0, 800)


def ends(schedule, prompt_tokens: int, count: int) -> list[int]:
    found = [0]
    for index in range(count):
        found.append(schedule.chunk_end(prompt_tokens, index, found[-1]))
    return found[1:]


@given(prompts, st.integers(1, 60))
def test_block_chunks_end_at_block_boundaries(prompt_tokens, min_first):
    for end in ends(BlockSchedule(25, min_first), prompt_tokens, 6):
        assert (prompt_tokens + end) % 25 == 0


@given(prompts, st.integers(1, 60))
def test_first_block_chunk_is_the_shortest_that_is_long_enough(prompt_tokens, min_first):
    [first] = ends(BlockSchedule(25, min_first), prompt_tokens, 1)
    assert min_first <= first < min_first + 25


def test_block_chunks_grow_to_the_last_size():
    assert ends(BlockSchedule(25, 10, (1, 2, 4)), 15, 5) == [10, 35, 85, 185, 285]


def test_upstream_chunks_follow_the_published_schedule():
    assert ends(UpstreamSchedule(), 13, 4) == [37, 87, 187, 287]
    assert ends(UpstreamSchedule(), 25, 3) == [25, 75, 175]
    assert ends(UpstreamSchedule(), 0, 2) == [25, 75]


@given(
    st.sampled_from([BlockSchedule(), BlockSchedule(25, 30, (1,)), UpstreamSchedule(), OneChunk()]),
    prompts,
    st.lists(st.integers(0, 6560), max_size=400),
)
def test_portions_hold_every_token_once_in_order(schedule, prompt_tokens, tokens):
    portions = Portions(schedule, prompt_tokens, 3)
    given_out: list[int] = []
    chunk_ends = iter(ends(schedule, prompt_tokens, 50))
    for token in tokens:
        portion = portions.push(token)
        if portion is not None:
            given_out += portion
            assert len(given_out) == next(chunk_ends) + 3
    assert given_out + portions.finish() == tokens


def test_impossible_schedules_are_refused():
    with pytest.raises(InvalidInput, match="min_first_tokens: 0"):
        BlockSchedule(min_first_tokens=0)
    with pytest.raises(InvalidInput, match=r"blocks: \(1, 0\)"):
        BlockSchedule(blocks=(1, 0))
    with pytest.raises(InvalidInput, match="blocks"):
        BlockSchedule(blocks=())
