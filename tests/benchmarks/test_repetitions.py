"""How two waveforms of one request differ."""

from __future__ import annotations

import numpy as np

from cosyvoice_client import AudioChunk
from repetitions import _summary, difference, gone_on

WAVE = np.linspace(-0.5, 0.5, 1_000, dtype=np.float32)


def test_rounding_is_no_difference_and_more_is_where_it_begins():
    assert difference(WAVE, WAVE)["largest"] == 0.0
    rounded = difference(WAVE, WAVE + np.float32(1e-4))
    assert rounded["first_different"] is None
    assert 0.9e-4 < rounded["largest"] < 1.1e-4
    other = WAVE.copy()
    other[[300, 700]] += 0.01
    assert difference(WAVE, other)["first_different"] == 300


def test_shorter_speech_differs_where_it_ends():
    found = difference(WAVE, WAVE[:600])
    assert (found["samples"], found["first_different"]) == ([1_000, 600], 600)
    assert difference(WAVE, WAVE[:0])["first_different"] == 0


def test_summary_counts_the_same_and_tells_where_the_others_part():
    other = WAVE.copy()
    other[300] += 0.01
    repeated = [difference(WAVE, each) for each in (WAVE, other, WAVE[:50], WAVE)]
    assert _summary(repeated) == ["2 of 4", "0.0e+00", "50, 300"]
    assert _summary(repeated[1:3]) == ["0 of 2", "-", "50, 300"]


def test_speech_that_goes_on_is_compared_where_it_was_heard():
    def chunk(samples: np.ndarray, *tokens: int) -> AudioChunk:
        return AudioChunk(samples, 0.0, spoken_tokens=tokens)

    uncut = [chunk(WAVE[:400], 1, 2), chunk(WAVE[400:], 3, 4, -1)]
    other = np.concatenate([WAVE[:400], WAVE[400:] + 0.1])
    found = gone_on(uncut, uncut[:1], [chunk(other, 1, 2, 3, 9, -1)])
    assert found["joined"]
    assert (found["samples"], found["first_different"]) == ([400, 400], None)
    assert found["tokens"] == {"handed over": 2, "came": 5, "as uncut": 3}
    assert not gone_on(uncut, uncut[:1], [chunk(WAVE + 0.1, 1, 2)])["joined"]
