"""When the last of several utterances has ended."""

from __future__ import annotations

import queue
from dataclasses import replace

import pytest

from cosyvoice_runtime.engine.batches import Usage
from cosyvoice_runtime.engine.batches.memory import Trim

NOBODY = Usage(0, 0, 0, 0, {}, 0, 0)
TIMEOUT_S = 60


def looks(crowd: Trim, *utterances: int, scheduler: int = 0) -> None:
    for count in utterances:
        crowd.look(scheduler, replace(NOBODY, utterances=count))


@pytest.mark.parametrize("utterances", [(2, 0), (1, 2, 1, 0), (5, 0, 0, 0), (3, 0, 1, 0)])
def test_a_crowd_that_has_gone_is_noticed_once(utterances):
    gone = queue.Queue()
    crowd = Trim(lambda: gone.put(1), quiet_s=0)
    looks(crowd, *utterances)
    assert gone.get(timeout=TIMEOUT_S)
    looks(crowd, 0, 1, 0, 2)
    assert gone.empty()
    looks(crowd, 0)
    assert gone.get(timeout=TIMEOUT_S)


@pytest.mark.parametrize("utterances", [(0, 0), (2, 1, 2, 1), (4, 0, 1)])
def test_nothing_is_waited_for_while_somebody_speaks_or_before_anybody_has(utterances):
    gone = []
    crowd = Trim(lambda: gone.append(1), quiet_s=1e6)
    looks(crowd, *utterances)
    assert gone == []
    assert crowd._timer is None


@pytest.mark.parametrize(("utterances", "quiet_s"), [((1, 0, 1, 0), 2e6), ((1, 0, 2, 0), 1e6)])
def test_after_one_at_a_time_quiet_must_last_longer(utterances, quiet_s):
    crowd = Trim(lambda: None, quiet_s=1e6, lone_quiet_s=2e6)
    looks(crowd, *utterances)
    assert crowd._timer.interval == quiet_s
    crowd.close()


def test_single_ones_are_followed_by_quiet_too():
    gone = queue.Queue()
    crowd = Trim(lambda: gone.put(1), quiet_s=1e6, lone_quiet_s=0)
    looks(crowd, 1, 0)
    assert gone.get(timeout=TIMEOUT_S)


def test_one_with_each_of_two_schedulers_is_a_crowd_that_has_gone_with_both():
    gone = queue.Queue()
    crowd = Trim(lambda: gone.put(1), quiet_s=0)
    looks(crowd, 1, scheduler=0)
    looks(crowd, 1, 0, scheduler=1)
    assert crowd._timer is None
    looks(crowd, 0, scheduler=0)
    assert gone.get(timeout=TIMEOUT_S)


def test_a_crowd_whose_quiet_somebody_interrupts_is_not_forgotten():
    gone = queue.Queue()
    crowd = Trim(lambda: gone.put(1), quiet_s=1e6)
    looks(crowd, 2, 0)
    interrupted = crowd._timer
    looks(crowd, 1)
    assert interrupted.finished.is_set()
    crowd._quiet_s = 0
    looks(crowd, 0)
    assert gone.get(timeout=TIMEOUT_S)


def test_utterances_that_begin_and_end_in_one_turn_count_too():
    crowd = Trim(lambda: None, quiet_s=1e6, lone_quiet_s=2e6)
    timers = []
    for opened in (1, 1, 2, 5):
        crowd.look("cpu", replace(NOBODY, voice_hits=opened - 1, voice_misses=1))
        timers.append(crowd._timer)
    assert [timer.interval for timer in timers] == [2e6, 2e6, 2e6, 1e6]
    assert timers[0] is timers[1]
    assert [timer.finished.is_set() for timer in timers] == [True, True, True, False]
    crowd.close()


def test_nothing_is_done_after_the_end():
    gone = []
    crowd = Trim(lambda: gone.append(1), quiet_s=1e6)
    looks(crowd, 2, 0)
    waiting = crowd._timer
    crowd.close()
    assert waiting.finished.is_set()
    looks(crowd, 2, 0)
    assert crowd._timer is None
    assert gone == []


def test_a_timer_that_rings_after_somebody_has_come_does_nothing():
    gone = []
    crowd = Trim(lambda: gone.append(1), quiet_s=1e6)
    looks(crowd, 2, 0, 1)
    crowd._ring()
    assert gone == []
    looks(crowd, 0)
    assert crowd._timer is not None
    crowd.close()
