"""Pauses between tries grow, and no further than their limit."""

from __future__ import annotations

from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor.tries import FIRST_S, LONGEST_S, WINDOW_S, GrowingPause


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_first_try_waits_for_nothing_and_each_further_one_twice_as_long():
    clock = Clock()
    pause = GrowingPause(clock=clock)
    pauses = []
    for _ in range(8):
        assert not pause.left_s
        pauses.append(pause.failed())
        clock.now += pauses[-1] - 0.01
        assert pause.left_s
        clock.now += 0.01
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]


def test_success_starts_again():
    pause = GrowingPause()
    for _ in range(5):
        pause.failed()
    pause.succeeded()
    assert not pause.left_s
    assert pause.failed() == FIRST_S


def test_reloads_that_fail_at_once_take_most_of_the_time_in_which_they_are_counted():
    clock = Clock()
    pause = GrowingPause(clock=clock)
    total = sum(pause.failed() for _ in range(ServerSettings().max_reloads))
    assert WINDOW_S * 0.75 < total < WINDOW_S
    assert LONGEST_S < WINDOW_S
