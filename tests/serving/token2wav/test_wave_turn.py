"""Whose tokens come next, and how many of them."""

from __future__ import annotations

import math

import pytest
from coded_waves import chunk
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.serving.token2wav.turn import (
    DUE_S,
    GPU_BLOCKS,
    HURRY_S,
    NEW_VOICE_DELAY_S,
    TurnBudget,
    WaveJob,
    in_order,
    plan_turn,
    plan_turn_of_gpu,
    urgent,
)

BLOCK = 25


def jobs(*lengths: int) -> list[WaveJob]:
    return [
        WaveJob(chunk(str(row), [0] * length), deliver=lambda _: None, deadline=float(row))
        for row, length in enumerate(lengths)
    ]


def tokens(*lengths: int, budget: int, rows: int = 8) -> list[int]:
    return [share.tokens for share in plan_turn(jobs(*lengths), rows, budget, BLOCK)]


def test_everything_goes_at_once_where_there_is_room():
    assert tokens(13, 100, 60, budget=1000) == [13, 25, 25]
    assert tokens(100, 13, 60, budget=1000) == [100, 13, 60]


def test_long_chunk_is_cut_into_whole_blocks():
    assert tokens(103, budget=60) == [50]
    assert tokens(103, budget=1) == [25]
    assert tokens(20, budget=1) == [20]


def test_rows_count_as_long_as_the_longest():
    assert tokens(25, 25, 25, budget=60) == [25, 25]
    assert tokens(13, 100, budget=40) == [13]


def test_no_more_rows_than_allowed():
    assert tokens(1, 1, 1, budget=1000, rows=2) == [1, 1]


@given(st.lists(st.integers(0, 300), min_size=1, max_size=9), st.integers(1, 2000), st.integers(1, 6))
def test_turn_makes_progress_and_stays_within_its_budget(lengths, budget, rows):
    shares = plan_turn(jobs(*lengths), rows, budget, BLOCK)
    assert 1 <= len(shares) <= rows
    assert [share.job.deadline for share in shares] == list(range(len(shares)))
    assert all(share.tokens > 0 or share.job.tokens_left == 0 for share in shares)
    assert len(shares) * max(share.tokens for share in shares) <= max(budget, BLOCK)
    assert all(share.tokens == share.job.tokens_left or (share.tokens % BLOCK == 0) for share in shares)


def gpu_tokens(*lengths: int, budget: int, rows: int = 16, now: float = -1.0) -> list[int]:
    return [share.tokens for share in plan_turn_of_gpu(jobs(*lengths), rows, budget, BLOCK, now)]


def test_many_jobs_of_a_gpu_get_a_block_each_and_few_several():
    assert gpu_tokens(25, 100, 100, 100, budget=100) == [25, 25, 25, 25]
    assert gpu_tokens(100, 100, budget=100) == [50, 50]
    assert gpu_tokens(100, 100, 100, 100, 100, budget=100) == [50, 25, 25, 25]


def test_most_urgent_job_of_a_gpu_gets_the_blocks_of_a_first_chunk():
    assert gpu_tokens(41, 100, 100, 100, budget=100) == [41, 25, 25, 25]


def test_who_waits_for_less_is_not_made_to_wait_for_what_others_get():
    assert gpu_tokens(16, 41, budget=1000, now=0.0) == [16, 25]
    assert gpu_tokens(16, 41, budget=1000, now=-2 * HURRY_S) == [16, 41]


def test_parts_of_a_gpus_turn_have_as_many_blocks_as_calls_are_captured_for():
    assert gpu_tokens(*[100] * 4, budget=3 * 4 * BLOCK) == [50] * 4
    assert gpu_tokens(*[100] * 4, budget=4 * 4 * BLOCK) == [100] * 4


def test_few_jobs_wait_for_those_whose_listeners_run_dry_soon():
    few = jobs(*[25] * GPU_BLOCKS)  # due a second later each
    assert urgent(few, now=2.0 - DUE_S / 2) == few[:3]
    assert urgent(few, now=-1.0) == few


def test_many_jobs_are_served_together():
    many = jobs(*[25] * (GPU_BLOCKS + 1))
    assert urgent(many, now=0.0) == many


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=20),
    st.integers(1, 2000),
    st.integers(1, 16),
    st.sampled_from([-1.0, 0.0]),
)
def test_turn_of_a_gpu_makes_progress_and_stays_within_its_budget(lengths, budget, rows, now):
    shares = plan_turn_of_gpu(jobs(*lengths), rows, budget, BLOCK, now)
    assert 1 <= len(shares) <= rows
    assert [share.job.deadline for share in shares] == list(range(len(shares)))
    assert all(share.tokens > 0 or share.job.tokens_left == 0 for share in shares)
    assert sum(share.tokens for share in shares) <= max(budget, BLOCK) + BLOCK
    assert all(share.tokens == share.job.tokens_left or share.tokens % BLOCK == 0 for share in shares)


def test_budget_settles_where_turns_last_as_long_as_they_may():
    budget = TurnBudget(limit_s=0.2, least_tokens=BLOCK)
    for _ in range(10):
        budget.learn(budget.tokens, seconds=0.05 + budget.tokens * 0.001)
    assert 100 <= budget.tokens <= 200


def test_slow_machine_gets_single_blocks():
    budget = TurnBudget(limit_s=0.2, least_tokens=BLOCK)
    budget.learn(100, seconds=2.0)
    assert budget.tokens == BLOCK


def test_small_turns_teach_nothing_about_large_ones():
    budget = TurnBudget(limit_s=0.2, least_tokens=BLOCK)
    budget.learn(25, 0.01)
    for _ in range(10):
        budget.learn(5, 0.01)
    assert budget.tokens == 50


@pytest.mark.parametrize(
    ("soon_s", "order"),
    [(2.0, [3, 1, 5, 4, 0, 2]), (1.0, [3, 1, 4, 5, 0, 2]), (math.inf, [3, 1, 5, 4, 2, 0])],
)
def test_whoever_is_due_soon_comes_first_and_then_whoever_came_first(soon_s, order):
    now, deadlines, numbers = 10.0, (13.0, 10.9, 12.5, 10.5, 11.5, 11.2), (2, 7, 3, 0, 0, 1)
    given = list(zip(deadlines, numbers, strict=True))
    jobs = [WaveJob(chunk("a", [0]), print, deadline, number) for deadline, number in given]
    assert [jobs.index(job) for job in in_order(jobs, now + soon_s)] == order


def test_the_first_of_all_who_is_well_supplied_is_served_after_those_due_soon():
    supplied, due = WaveJob(chunk("a", [0]), print, 20.0, 0), WaveJob(chunk("b", [0]), print, 11.0, 5)
    assert in_order([supplied, due], 12.0) == [due, supplied]


def test_a_new_voice_is_due_later():
    new = WaveJob(chunk("a", [0]), print, 10.0, 1, needs_voice=True)
    known = WaveJob(chunk("b", [0]), print, 10.0 + NEW_VOICE_DELAY_S / 2, 2)
    assert in_order([new, known], math.inf) == [known, new]
