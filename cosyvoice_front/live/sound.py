"""Where a stream of audio sounds, and where it is silent."""

from __future__ import annotations

import numpy as np

from cosyvoice_client.encoders import Samples
from cosyvoice_front.rate import RATE

FRAME = RATE // 100
FRAME_S = FRAME / RATE
FAINT, FAINT_SHARE = 0.003, 0.01
"""A frame is silent below this effective value, or below this share of the loudest frame so far."""


class Sound:
    """The frames of a segment that are not silent. A place in the sound counts only these.

    Attributes:
        heard_s: length of all audio so far, of earlier segments too.
    """

    def __init__(self) -> None:
        self.heard_s = 0.0
        self._rest = np.zeros(0, np.float32)
        self._loudest = 0.0
        self._starts: list[float] = []

    @property
    def seconds(self) -> float:
        """How long the segment has sounded."""
        return len(self._starts) * FRAME_S

    @property
    def _framed_s(self) -> float:
        return self.heard_s - len(self._rest) / RATE

    def begin(self) -> None:
        """A new segment begins; the last few samples of the one before belong to it."""
        self._starts = []

    def add(self, samples: Samples) -> None:
        start_s = self._framed_s
        self.heard_s += len(samples) / RATE
        waiting = np.concatenate([self._rest, samples])
        count = len(waiting) // FRAME
        self._rest = waiting[count * FRAME :]
        values = np.sqrt(np.mean(waiting[: count * FRAME].reshape(-1, FRAME) ** 2, axis=1))
        for number, value in enumerate(values.tolist()):
            self._loudest = max(self._loudest, value)
            if value > max(FAINT, FAINT_SHARE * self._loudest):
                self._starts.append(start_s + number * FRAME_S)

    def between(self, start_s: float, end_s: float) -> tuple[float, float]:
        """Seconds of the stream at which two places in the segment's sound are heard.

        A place in a silence is its end for a beginning, and its beginning for an end.
        """
        if not self._starts:
            return self._framed_s, self._framed_s
        first = min(int(start_s / FRAME_S + 1e-6), len(self._starts) - 1)
        last = max(first, min(int(np.ceil(end_s / FRAME_S - 1e-6)) - 1, len(self._starts) - 1))
        start = self._starts[first] + min(start_s - first * FRAME_S, FRAME_S)
        return start, max(start, self._starts[last] + min(end_s - last * FRAME_S, FRAME_S))
