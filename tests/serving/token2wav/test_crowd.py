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


@pytest.mark.parametrize("utterances", [(2, 0), (1, 2, 1, 0), (5, 0, 0, 0), (3, 0, 1, 0)])
def test_a_crowd_that_has_gone_is_noticed_once(utterances):
    gone = queue.Queue()
    crowd = Crowd(lambda: gone.put(1), quiet_s=0)
    looks(crowd, *utterances)
    assert gone.get(timeout=TIMEOUT_S)
    looks(crowd, 0, 1, 0, 2)
    assert gone.empty()
    looks(crowd, 0)
    assert gone.get(timeout=TIMEOUT_S)


@pytest.mark.parametrize("utterances", [(0, 0), (1, 0, 1, 0), (2, 1, 2, 1), (4, 0, 1)])
def test_nobody_is_told_of_single_ones_and_of_those_who_speak_on(utterances):
    gone = []
    crowd = Crowd(lambda: gone.append(1), quiet_s=1e6)
    looks(crowd, *utterances)
    assert gone == []
    assert crowd._timer is None
