"""When a turn may be launched: shortly before the one under way ends, if it is known how long it takes."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from coded_waves import BLOCK, jobs

from cosyvoice_runtime.engine.batches.job import BatchSize, LaunchedBatch, Share
from cosyvoice_runtime.engine.batches.worker import MARGIN_S, VOCODER_S, Pace

SIZE, OTHER = BatchSize(4, 1), BatchSize(8, 1)


def pace_that_knows(took_s: float, launch_s: float = 0.0, at_once: int = 2) -> Pace:
    """A turn of SIZE began at 0 and took so long."""
    pace = Pace(at_once)
    pace.launched(SIZE, 0.0, launch_s)
    assert pace.ended(took_s) == took_s
    return pace


def test_turn_may_be_launched_at_once_where_none_is_under_way():
    assert Pace(1).delay(7.0) == 0
    assert pace_that_knows(0.05).delay(7.0) == 0


@pytest.mark.parametrize("size", [OTHER, None])
def test_nobody_knows_when_the_first_turn_of_a_size_ends(size):
    pace = pace_that_knows(0.05)
    pace.launched(size, 1.0, 1.0)
    assert pace.delay(2.0) is None
    pace.ended(2.0)
    assert pace.delay(2.0) == 0


def test_next_turn_is_launched_so_early_that_it_is_there_when_the_last_ends():
    pace = pace_that_knows(0.05, launch_s=0.01)
    pace.launched(SIZE, 1.0, 1.01)
    assert pace.delay(1.01) == pytest.approx(0.05 - 0.01 - MARGIN_S - 0.01)
    assert pace.delay(1.045) < 0


def test_next_turn_begins_beside_the_vocoder_of_the_last_where_turns_overlap():
    delays = []
    for overlaps in (False, True):
        pace = Pace(2, overlaps)
        pace.launched(SIZE, 0.0, 0.0)
        pace.ended(0.05)
        pace.launched(SIZE, 1.0, 1.0)
        delays.append(pace.delay(1.0))
    assert delays == pytest.approx([0.05 - MARGIN_S, 0.05 - MARGIN_S - VOCODER_S])


def test_no_more_turns_are_under_way_than_may_be():
    one, two = pace_that_knows(0.05, at_once=1), pace_that_knows(0.05)
    for pace in (one, two):
        pace.launched(SIZE, 1.0, 1.0)
    assert one.delay(2.0) is None
    two.launched(SIZE, 1.04, 1.04)
    assert two.delay(2.0) is None
    two.ended(1.05)
    assert two.delay(2.0) is None  # nobody knows yet how long a turn takes that was launched ahead


def test_turn_launched_ahead_takes_its_time_from_the_end_of_the_last():
    pace = pace_that_knows(0.05)
    pace.launched(SIZE, 1.0, 1.0)
    pace.launched(SIZE, 1.04, 1.04)
    pace.ended(1.05)
    assert pace.ended(1.09) == pytest.approx(0.04)


def test_turn_that_the_last_had_ended_before_counts_from_its_own_launch():
    pace = pace_that_knows(0.05)
    pace.launched(SIZE, 1.0, 1.0)
    pace.ended(1.05)
    pace.launched(SIZE, 1.2, 1.21)
    assert pace.ended(1.26) == pytest.approx(0.06)


def size(*tokens: int) -> BatchSize | None:
    shares = [Share(job, count) for job, count in zip(jobs(*tokens), tokens, strict=True)]
    return LaunchedBatch(shares, list, of_new_voice=False, held=ExitStack()).size(BLOCK)


def test_sizes_are_those_of_captured_calls():
    assert size(25) == (1, 1)
    assert size(3, 25, 0) == size(25, 25, 25, 1) == (4, 1)
    assert size(*[25] * 9) == size(*[1] * 11, 25) == (12, 1)
    assert size(*[25] * 13) == size(*[1] * 15, 25) == (16, 1)
    assert size(26, 1) == (2, 2)


def test_launch_of_a_new_voice_says_nothing_about_others():
    pace = pace_that_knows(0.05, launch_s=0.01)
    pace.launched(None, 1.0, 1.5)
    pace.ended(1.6)
    pace.launched(SIZE, 2.0, 2.0)
    delay = pace.delay(2.0)
    assert delay is not None
    assert delay >= 0.05 - 0.01 - MARGIN_S


def test_one_slow_launch_is_expected_again_until_faster_ones_follow():
    pace = pace_that_knows(0.05, launch_s=0.02)
    for begun in (1.0, 2.0, 3.0):
        pace.launched(SIZE, begun, begun + 0.004)
        pace.ended(begun + 0.05)
    pace.launched(SIZE, 4.0, 4.004)
    delay = pace.delay(4.004)
    assert delay is not None
    assert 0.05 - 0.02 - MARGIN_S < delay + 0.004 < 0.05 - 0.004 - MARGIN_S
