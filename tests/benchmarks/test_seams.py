"""Steps of loudness that are known."""

from __future__ import annotations

import numpy as np
import pytest

from measuring.audible import LOUD
from measuring.seams import WINDOW_S, Steps

RATE = 24_000
WIDTH = round(WINDOW_S * RATE)


def buzz(level, seconds):
    """A square wave of this root mean square."""
    return np.tile([level, -level], round(seconds * RATE / 2)).astype(np.float32)


def measured(samples, joins):
    steps = Steps()
    steps.add(samples, joins, RATE)
    return steps


@pytest.mark.parametrize(("before", "after"), [(0.1, 0.2), (0.2, 0.1)])
def test_step_where_chunks_join_is_seen_there_alone(before, after):
    steps = measured(np.concatenate([buzz(before, 0.5), buzz(after, 0.5)]), [RATE // 2])
    assert steps.at_joins == [pytest.approx(20 * np.log10(2), abs=1e-3)]
    assert max(steps.elsewhere) < 1e-3
    # All places every 20 ms of the second, but the ends and those 20 ms before, at and behind the join.
    assert len(steps.elsewhere) == 49 - 3


def test_step_elsewhere_is_none_of_the_join():
    steps = measured(np.concatenate([buzz(0.1, 0.5), buzz(0.2, 0.5)]), [RATE // 4])
    assert steps.at_joins == [pytest.approx(0, abs=1e-3)]
    assert max(steps.elsewhere) == pytest.approx(6.02, abs=0.01)


def test_step_from_silence_counts_from_what_is_audible():
    steps = measured(np.concatenate([buzz(0.0, 0.5), buzz(10 * LOUD, 0.5)]), [RATE // 2])
    assert steps.at_joins == [pytest.approx(20, abs=1e-3)]


def test_silence_after_silence_is_no_place():
    steps = measured(buzz(0.9 * LOUD, 1.0), [RATE // 2])
    assert (steps.at_joins, steps.elsewhere) == ([], [])
    assert set(steps.figures().values()) == {0, None}


@pytest.mark.parametrize("join", [WIDTH - 1, RATE - WIDTH + 1])
def test_join_without_a_whole_window_on_both_sides_is_no_place(join):
    assert measured(buzz(0.1, 1.0), [join]).at_joins == []


def test_answer_of_one_chunk_has_places_and_no_join():
    figures = measured(buzz(0.1, 1.0), []).figures()
    assert figures == {
        "joins": 0,
        "at_joins_db": None,
        "standard_error_db": None,
        "elsewhere_db": pytest.approx(0, abs=1e-3),
    }


def test_figures_are_of_all_answers():
    steps = Steps([1.0, 3.0], [2.0])
    steps.add(np.concatenate([buzz(0.1, 0.5), buzz(0.2, 0.5)]), [RATE // 2], RATE)
    figures = steps.figures()
    assert (figures["joins"], figures["at_joins_db"]) == (3, pytest.approx((1 + 3 + 6.021) / 3, abs=1e-3))
    assert figures["standard_error_db"] == pytest.approx(np.std([1, 3, 6.021], ddof=1) / 3**0.5, abs=1e-3)
