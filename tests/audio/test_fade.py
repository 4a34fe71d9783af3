"""The end of speech that is cut."""

from __future__ import annotations

import numpy as np
import pytest

from cosyvoice_runtime.audio.fade import FadeOut

RATE = 24_000
SINE = (0.5 * np.sin(np.arange(700) * 0.2)).astype(np.float32)


@pytest.mark.parametrize("cuts", [[], [1, 600, 690, 699], list(range(700))])
def test_last_5_ms_fade_out_backwards(cuts):
    fade = FadeOut(RATE)
    for part in np.split(SINE, cuts):
        fade.hear(part)
    rest = fade.rest()
    assert len(rest) == 120
    assert rest[0] == pytest.approx(SINE[-1], abs=1e-3)
    assert rest[-1] == 0
    assert np.all(np.abs(rest) <= np.abs(SINE[:-121:-1]))
    heard = np.concatenate([SINE, rest])
    assert np.abs(np.diff(heard)).max() <= 1.2 * np.abs(np.diff(SINE)).max()


def test_shorter_speech_fades_for_as_long_as_it_is():
    fade = FadeOut(RATE)
    assert len(fade.rest()) == 0
    fade.hear(SINE[:10])
    assert len(fade.rest()) == 10
    assert fade.rest()[-1] == 0
