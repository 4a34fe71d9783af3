"""Where audio sounds, and the pauses that belong to no word."""

from __future__ import annotations

import numpy as np
import pytest

from cosyvoice_runtime.alignment.sound import FRAME_S, AudibleFrames

RATE = 24_000


def audible(*stretches: tuple[float, bool]) -> AudibleFrames:
    """Frames of stretches of so many seconds, each sounding or silent."""
    frames = AudibleFrames(RATE)
    for seconds, sounding in stretches:
        frames.add(np.full(round(seconds * RATE), 0.3 * sounding, np.float32))
    return frames


@pytest.mark.parametrize(
    ("word", "narrowed"),
    [
        ((0.0, 0.5), (0.2, 0.5)),  # the silence before the speech
        ((0.5, 1.1), (0.5, 1.0)),  # a pause behind the word
        ((1.2, 1.6), (1.3, 1.6)),  # and before one
        ((1.4, 1.83), (1.4, 1.83)),  # a plosive's closure is sound
        ((1.85, 2.5), (1.85, 2.0)),  # the silence behind the speech
    ],
)
def test_word_has_no_pause_at_its_ends(word, narrowed):
    frames = audible(
        (0.2, False), (0.8, True), (0.3, False), (0.5, True), (0.06, False), (0.14, True), (0.5, False)
    )
    assert frames.narrowed(*word) == pytest.approx(narrowed, abs=FRAME_S / 2)


def test_word_in_silence_stays_where_it_is():
    assert audible((1.0, False)).narrowed(0.2, 0.4) == (0.2, 0.4)
