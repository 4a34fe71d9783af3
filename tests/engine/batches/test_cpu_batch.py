"""Whose tokens come next, and how many of them."""

from __future__ import annotations

import math

import pytest
from coded_waves import BLOCK, chunk, jobs
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.engine.batches.job import WaveJob
from cosyvoice_runtime.engine.batches.planner import TokenBudget, in_order, plan_batch


def tokens(*lengths: int, budget: int, rows: int = 8) -> list[int]:
    return [share.tokens for share in plan_batch(jobs(*lengths), rows, budget, BLOCK)]


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
    shares = plan_batch(jobs(*lengths), rows, budget, BLOCK)
    assert 1 <= len(shares) <= rows
    assert [share.job.deadline for share in shares] == list(range(len(shares)))
    assert all(share.tokens > 0 or share.job.tokens_left == 0 for share in shares)
    assert len(shares) * max(share.tokens for share in shares) <= max(budget, BLOCK)
    assert all(share.tokens == share.job.tokens_left or (share.tokens % BLOCK == 0) for share in shares)


def test_budget_settles_where_turns_last_as_long_as_they_may():
    budget = TokenBudget(limit_s=0.2, least_tokens=BLOCK)
    for _ in range(10):
        budget.learn(budget.tokens, seconds=0.05 + budget.tokens * 0.001)
    assert 100 <= budget.tokens <= 200


def test_slow_machine_gets_single_blocks():
    budget = TokenBudget(limit_s=0.2, least_tokens=BLOCK)
    budget.learn(100, seconds=2.0)
    assert budget.tokens == BLOCK


def test_small_turns_teach_nothing_about_large_ones():
    budget = TokenBudget(limit_s=0.2, least_tokens=BLOCK)
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
