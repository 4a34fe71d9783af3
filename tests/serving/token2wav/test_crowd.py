"""When the last of several utterances has ended."""

from __future__ import annotations

import queue
from dataclasses import replace

import pytest

from cosyvoice_runtime.serving.token2wav.crowd import Crowd
from cosyvoice_runtime.serving.token2wav.usage import Usage

NOBODY = Usage(0, 0, 0, 0, 0, 0, 0, 0, {}, 0, 0)
TIMEOUT_S = 60


def looks(crowd: Crowd, *utterances: int) -> None:
    for count in utterances:
        crowd.look(replace(NOBODY, utterances=count))


def idle(action):
    action()


@pytest.mark.parametrize("utterances", [(2, 0), (1, 2, 1, 0), (5, 0, 0, 0), (3, 0, 1, 0)])
def test_a_crowd_that_has_gone_is_noticed_once(utterances):
    gone = queue.Queue()
    crowd = Crowd(lambda: gone.put(1), idle, quiet_s=0)
    looks(crowd, *utterances)
    assert gone.get(timeout=TIMEOUT_S)
    looks(crowd, 0, 1, 0, 2)
    assert gone.empty()
    looks(crowd, 0)
    assert gone.get(timeout=TIMEOUT_S)


@pytest.mark.parametrize("utterances", [(0, 0), (1, 0, 1, 0), (2, 1, 2, 1), (4, 0, 1)])
def test_nobody_is_told_of_single_ones_and_of_those_who_speak_on(utterances):
    gone = []
    crowd = Crowd(lambda: gone.append(1), idle, quiet_s=1e6)
    looks(crowd, *utterances)
    assert gone == []
    assert crowd._timer is None


def test_a_crowd_whose_quiet_somebody_interrupts_is_not_forgotten():
    gone, asked, may_act = queue.Queue(), queue.Queue(), []

    def when_idle(action):
        asked.put(1)
        if may_act:
            action()

    crowd = Crowd(lambda: gone.put(1), when_idle, quiet_s=0)
    looks(crowd, 2, 0)
    assert asked.get(timeout=TIMEOUT_S)
    assert gone.empty()
    may_act.append(True)
    looks(crowd, 0)  # at the end of a turn that began and ended an utterance
    assert gone.get(timeout=TIMEOUT_S)


def test_utterances_that_begin_and_end_in_one_turn_are_a_crowd_too():
    gone = queue.Queue()
    crowd = Crowd(lambda: gone.put(1), idle, quiet_s=0)
    for opened in (1, 2):
        crowd.look(replace(NOBODY, voice_hits=opened))
    assert gone.empty()
    crowd.look(replace(NOBODY, voice_hits=4, voice_misses=1))
    assert gone.get(timeout=TIMEOUT_S)
