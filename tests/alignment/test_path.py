"""The path of speech tokens through their text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.alignment.path import MOST_AT_ONCE, MOST_ROWS, TextPath

PACE = 1.5


def shares(durations: list[int], noise: float = 0.0, seed: int = 0) -> np.ndarray:
    """Rows that each look at the token that is being spoken, float32 ``[rows, N]``."""
    rows = np.eye(len(durations))[np.repeat(np.arange(len(durations)), durations)]
    rows += noise * np.random.default_rng(seed).random(rows.shape)
    return (rows / rows.sum(1, keepdims=True)).astype(np.float32)


def begins(durations: list[int]) -> list[int]:
    return np.cumsum([0, *durations[:-1]]).tolist()


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_clear_rows_give_their_own_path_however_they_come(step):
    durations = [4, 7, 3, 12, 5, 6, 2, 9, 4, 4]
    rows = shares(durations, noise=0.05)
    path = TextPath([max(1, each - 1) / PACE for each in durations], PACE)
    for at in range(0, len(rows), step):
        path.push(rows[at : at + step])
    assert path.finish() == begins(durations)


def test_rows_that_come_together_are_searched_in_parts():
    """So the time of many does not grow as their square; the path of vague ones is settled as in parts."""
    rows = shares([9] * 40, noise=6.0, seed=3)
    together, in_parts = (TextPath([8 / PACE] * 40, PACE) for _ in range(2))
    together.push(rows)
    for at in range(0, len(rows), MOST_AT_ONCE):
        in_parts.push(rows[at : at + MOST_AT_ONCE])
    assert together.starts == in_parts.starts
    assert together.finish() == in_parts.finish()


def test_beginning_is_settled_after_its_lag():
    durations = [6] * 8
    rows, path = shares(durations, noise=0.02), TextPath([5 / PACE] * 8, PACE, lag=5)
    settled = []
    for row in rows:
        path.push(row[None])
        settled.append(len(path.starts))
    assert [settled.index(number) + 1 for number in range(2, 8)] == [6 * number + 5 for number in range(1, 7)]


def test_glance_ahead_is_no_step():
    """Three rows in the middle of a long word look at the next one."""
    durations = [8, 16, 8]
    rows = shares(durations)
    rows[14:17] = [0.0, 0.3, 0.7]
    path = TextPath([7 / PACE, 15 / PACE, 7 / PACE], PACE)
    path.push(rows)
    assert path.finish() == begins(durations)


def test_token_without_letters_lasts_as_long_as_a_pause_or_not_at_all():
    for pause in (0, 3, 3 * MOST_ROWS):
        durations = [6, pause, 6]
        path = TextPath([5 / PACE, 0, 5 / PACE], PACE)
        for row in shares(durations):
            path.push(row[None])
        assert path.finish() == begins(durations)


def test_speech_that_stops_early_leaves_the_rest_behind_it():
    durations = [5] * 48
    path = TextPath([4 / PACE] * len(durations), PACE)
    path.push(shares(durations)[:40])
    assert path.finish()[:8] == begins(durations)[:8]
    assert len(path.starts) == len(durations)
    assert path.starts[-1] == 40


def test_one_token_and_no_rows():
    path = TextPath([3.0], PACE)
    path.push(np.zeros((0, 1), np.float32))
    assert path.finish() == [0]
    assert TextPath([3.0, 2.0], PACE).finish() == [0, 0]


tokens = st.integers(1, 40)


@given(st.data(), tokens, st.integers(0, 120), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_whatever_is_looked_at_beginnings_ascend_and_stay(data, count, rows, lag, seed):
    chance = np.random.default_rng(seed)
    looked = chance.random((rows, count)).astype(np.float32) ** data.draw(st.sampled_from([1, 8])) + 1e-6
    looked /= looked.sum(1, keepdims=True)
    path = TextPath(chance.integers(0, 12, count), PACE, lag)
    told, at = [0], 0
    while at < rows:
        step = data.draw(st.integers(1, 9))
        path.push(looked[at : at + step])
        at += step
        assert path.starts[: len(told)] == told
        told = list(path.starts)
        assert all(start <= path.rows - lag for start in told[1:])
    starts = path.finish()
    assert starts[: len(told)] == told
    assert starts == sorted(starts)
    assert len(starts) == count
    assert starts[-1] <= rows
