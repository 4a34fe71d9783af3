"""Steps and turns on one GPU: never both, steps first after a turn, no wait for one without work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from cosyvoice_runtime.gpu.partitions.shared_gpu import FIRST_TOKENS_S, SHIFT_S, GpuShifts
from eventually import eventually

TIMEOUT_S = 30.0


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def beside(work: Callable[[], None]) -> threading.Event:
    """Set when the work is done."""
    done = threading.Event()
    threading.Thread(target=lambda: (work(), done.set()), daemon=True).start()
    return done


def turn(shifts: GpuShifts) -> Callable[[], None]:
    def run() -> None:
        with shifts.turn():
            pass

    return run


def step(shifts: GpuShifts, urgent: bool = False) -> Callable[[], None]:
    def run() -> None:
        with shifts.step(urgent):
            pass

    return run


def test_step_waits_for_the_end_of_a_turn():
    shifts = GpuShifts()
    with shifts.turn():
        done = beside(step(shifts))
        assert not done.wait(0.05)
    assert done.wait(TIMEOUT_S)


def test_turn_says_whether_it_had_to_wait():
    shifts = GpuShifts()
    said = []

    def run() -> None:
        with shifts.turn() as waited:
            said.append(waited)

    run()
    with shifts.step(urgent=False):
        done = beside(run)
        while not shifts.turn_is_wanted:
            time.sleep(0.001)
    shifts.rest()
    assert done.wait(TIMEOUT_S)
    assert said == [False, True]


def test_turn_waits_for_the_end_of_a_step():
    shifts = GpuShifts()
    with shifts.step(urgent=False):
        done = beside(turn(shifts))
        assert not done.wait(0.05)
    shifts.rest()
    assert done.wait(TIMEOUT_S)


def test_turns_wait_for_each_other():
    shifts = GpuShifts()
    with shifts.turn():
        done = beside(turn(shifts))
        assert not done.wait(0.05)
    assert done.wait(TIMEOUT_S)


@pytest.mark.parametrize(("urgent", "shift_s"), [(False, SHIFT_S), (True, FIRST_TOKENS_S)])
def test_steps_go_first_for_a_while_after_a_turn(urgent, shift_s):
    clock = Clock()
    shifts = GpuShifts(clock)
    turn(shifts)()
    step(shifts, urgent)()
    done = beside(turn(shifts))
    clock.now += 0.9 * shift_s
    step(shifts, urgent)()
    assert not done.is_set()
    clock.now += 0.2 * shift_s
    assert done.wait(TIMEOUT_S)


def test_turn_that_is_due_goes_before_the_next_step():
    """However soon the next step follows the one before."""
    shifts = GpuShifts()
    order: list[str] = []
    go_on = threading.Event()

    def due_turn() -> None:
        with shifts.turn():
            order.append("turn")
            go_on.wait(TIMEOUT_S)

    with shifts.step(urgent=False):
        turned = beside(due_turn)
        while not shifts.turn_is_wanted:
            time.sleep(0.001)
    go_on.set()
    with shifts.step(urgent=False):  # comes at once
        order.append("step")
    assert turned.wait(TIMEOUT_S)
    assert order == ["turn", "step"]


def test_turn_begins_when_it_is_due_though_first_tokens_left_while_it_waited():
    """Its wait for those, 800 s, would outlast the test."""
    clock = Clock()
    shifts = GpuShifts(clock)
    with shifts.turn():
        clock.now += 1000.0
    step(shifts, urgent=True)()
    turned = beside(turn(shifts))
    eventually(lambda: shifts.turn_is_wanted)
    clock.now += 600.0
    stepped = beside(step(shifts, urgent=False))
    assert turned.wait(TIMEOUT_S)
    assert stepped.wait(TIMEOUT_S)


def test_turn_does_not_wait_for_a_speech_lm_that_rests():
    clock = Clock()
    shifts = GpuShifts(clock)
    turn(shifts)()
    step(shifts)()
    shifts.rest()
    assert beside(turn(shifts)).wait(TIMEOUT_S)


def test_failed_step_and_turn_leave_the_gpu():
    shifts = GpuShifts()
    with pytest.raises(ValueError, match="step"), shifts.step(urgent=False):
        raise ValueError("step")
    shifts.rest()
    with pytest.raises(ValueError, match="turn"), shifts.turn():
        raise ValueError("turn")
    assert beside(step(shifts)).wait(TIMEOUT_S)
