"""When the last of several utterances has ended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cosyvoice_runtime.serving.token2wav.crowd import Crowd
from cosyvoice_runtime.serving.token2wav.usage import Usage

NOBODY = Usage(0, 0, 0, 0, 0, 0, 0, 0, {}, 0, 0)


@pytest.mark.parametrize(
    ("utterances", "goings"),
    [
        ([0, 0], 0),
        ([1, 0, 1, 0], 0),
        ([1, 2, 1, 0], 1),
        ([5, 0, 0, 0], 1),
        ([3, 0, 1, 0, 2, 0], 2),
        ([2, 1, 2, 1], 0),
    ],
)
def test_a_crowd_has_gone_when_the_last_of_several_has(utterances, goings):
    gone = []
    crowd = Crowd(lambda: gone.append(1))
    for count in utterances:
        crowd.look(replace(NOBODY, utterances=count))
    assert len(gone) == goings
