"""Whose tokens come next on a GPU, and how many of them."""

from __future__ import annotations

import pytest
from coded_waves import BLOCK, chunk, jobs
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.engine.batches.job import WaveJob
from cosyvoice_runtime.engine.batches.planner import LEAST_MISSED_S, plan_gpu_batch


def gpu_tokens(*lengths: int, blocks: int, rows: int = 16, now: float = -1.0) -> list[int]:
    return [share.tokens for share in plan_gpu_batch(jobs(*lengths), rows, blocks, BLOCK, now)]


def test_many_jobs_of_a_gpu_get_a_block_each_and_few_several():
    assert gpu_tokens(25, 100, 100, 100, blocks=4) == [25, 25, 25, 25]
    assert gpu_tokens(100, 100, blocks=4) == [50, 50]
    assert gpu_tokens(100, 100, 100, 100, 100, blocks=4) == [25, 25, 25, 25]


def test_long_chunk_of_a_gpu_is_cut_by_what_pays_whoever_waits_for_it():
    assert gpu_tokens(200, blocks=4, now=0.0) == [100]


def turn_of(*lengths: int, due: int = 0, rows: int = 16, blocks: int = 16 * 2) -> list[int]:
    """Places of the jobs in a turn; so many after the first must not miss it."""
    given = jobs(*lengths)
    for job in given[1 + due :]:
        job.deadline += 1.0
    return [
        given.index(share.job)
        for share in plan_gpu_batch(given, rows, blocks, BLOCK, now=due - LEAST_MISSED_S)
    ]


def test_row_that_has_less_makes_place_for_one_that_fills_the_turn():
    assert turn_of(100, 25, 100, 10, 60, rows=3) == [0, 2, 4]
    assert turn_of(25, 100, 25, 100, 25, 100, rows=3, blocks=3) == [0, 2, 4]


def test_row_that_has_less_comes_along_where_there_is_room():
    assert turn_of(50, 25, 50, 50, rows=4, blocks=4 * 2) == [0, 2, 3, 1]


def test_most_urgent_row_and_those_due_soon_never_make_place():
    assert turn_of(25, *[100] * 5, rows=4, blocks=4 * 2) == [0, 1, 2, 3]
    assert turn_of(100, 25, 10, 100, 100, due=2, rows=4, blocks=4 * 2) == [0, 1, 2, 3]


def test_end_of_an_utterance_makes_no_place():
    given = jobs(50, 50, 20, 50, 50)
    ending = WaveJob(chunk("2", [0] * 20, last=True), lambda _: None, deadline=2.0)
    given[2] = ending
    shares = plan_gpu_batch(given, 3, 3 * 2, BLOCK, now=-1.0)
    assert [given.index(share.job) for share in shares] == [0, 1, 2]


@pytest.mark.parametrize(
    ("left_s", "turn_s", "places"),
    [
        (LEAST_MISSED_S, 0.0, [0, 1, 2]),
        (LEAST_MISSED_S + 0.01, 0.0, [0, 2, 3]),
        (2 * LEAST_MISSED_S, LEAST_MISSED_S, [0, 1, 2]),  # the turn after would end too late
        (2 * LEAST_MISSED_S + 0.01, LEAST_MISSED_S, [0, 2, 3]),
    ],
)
def test_whoever_runs_dry_before_the_turn_after_makes_no_place(left_s, turn_s, places):
    given = jobs(50, 25, 50, 50, 50)  # due a second later each
    now = given[1].deadline - left_s
    shares = plan_gpu_batch(given, 3, 3 * 2, BLOCK, now, turn_s)
    assert [given.index(share.job) for share in shares] == places


@pytest.mark.parametrize(("ones", "tokens"), [(2, 50), (12, 25)])
def test_parts_are_as_long_as_makes_the_most_speech(ones, tokens):
    lengths = [*[50] * (16 - ones), *[25] * ones]
    assert max(gpu_tokens(*lengths, blocks=16 * 2)) == tokens


@given(st.lists(st.integers(1, 200), min_size=1, max_size=40), st.integers(1, 60), st.integers(1, 16))
def test_everybody_is_served_in_the_end(lengths, blocks, rows):
    waiting, turns = jobs(*lengths), 0
    while waiting:
        for share in plan_gpu_batch(waiting, rows, blocks, BLOCK, -1.0):
            share.job.launch(share.tokens)
        waiting = [job for job in waiting if job.waits]
        turns += 1
    assert turns <= sum(-(-length // BLOCK) for length in lengths)


def test_parts_of_a_gpus_turn_have_as_many_blocks_as_calls_are_captured_for():
    assert gpu_tokens(*[100] * 4, blocks=3 * 4) == [50] * 4
    assert gpu_tokens(*[100] * 4, blocks=4 * 4) == [100] * 4


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=20),
    st.integers(1, 80),
    st.integers(1, 16),
    st.sampled_from([-1.0, 0.0]),
)
def test_turn_of_a_gpu_makes_progress_and_stays_within_its_blocks(lengths, blocks, rows, now):
    shares = plan_gpu_batch(jobs(*lengths), rows, blocks, BLOCK, now)
    assert 1 <= len(shares) <= rows
    assert shares[0].job.deadline == 0
    assert len({share.job.deadline for share in shares}) == len(shares)
    assert all(share.tokens > 0 or share.job.tokens_left == 0 for share in shares)
    assert sum(share.tokens for share in shares) <= blocks * BLOCK
    assert all(share.tokens == share.job.tokens_left or share.tokens % BLOCK == 0 for share in shares)
