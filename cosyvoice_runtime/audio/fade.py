"""The end of speech that is cut: a few milliseconds in which it fades out, so that no click is heard."""

from __future__ import annotations

import numpy as np

from cosyvoice_runtime.arrays import Floats

FADE_S = 0.005


class FadeOut:
    """Knows how speech has ended so far, and holds none of it back.

    What follows a cut is the end of the speech backwards, as an echo of it that vanishes. It begins where the
    speech has stopped, and needs nothing that comes later.

    Args:
        rate: samples per second.
    """

    def __init__(self, rate: int) -> None:
        size = round(rate * FADE_S)
        self._ramp = (0.5 + 0.5 * np.cos(np.pi * np.arange(1, size + 1) / size)).astype(np.float32)
        self._last = np.zeros(0, np.float32)

    def hear(self, samples: Floats) -> None:
        """Take the next samples that a listener gets, float32 ``[n]``."""
        self._last = np.concatenate([self._last, samples])[-len(self._ramp) :]

    def rest(self) -> Floats:
        """Return 5 ms of samples that fade to silence; fewer where fewer have been heard."""
        return self._last[::-1] * self._ramp[len(self._ramp) - len(self._last) :]
