"""Where a stream of audio sounds, and where it is silent."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import numpy as np

from cosyvoice_runtime.arrays import Floats

FRAME_S = 0.01
FAINT, FAINT_SHARE = 0.003, 0.01
"""A frame is silent below this effective value, or below this share of the loudest frame so far."""


PAUSE_S = 0.12
"""A silence as long as this is a pause; a plosive's closure is shorter. Of 0.06 to 0.2 s, the demo voice's
errors are least from here on."""


KNOWN_S = PAUSE_S + 2 * FRAME_S
"""Seconds of sound behind a word that tell where it ends."""


class AudibleFrames:
    """The frames of a segment that are not silent. A place in the sound counts only these.

    Args:
        rate: samples per second.

    Attributes:
        heard_s: length of all audio so far, of earlier segments too.
    """

    def __init__(self, rate: int) -> None:
        self.heard_s = 0.0
        self._rate = rate
        self._frame = round(rate * FRAME_S)
        self._rest = np.zeros(0, np.float32)
        self._loudest = 0.0
        self._starts: list[float] = []

    @property
    def seconds(self) -> float:
        """How long the segment has sounded."""
        return len(self._starts) * FRAME_S

    @property
    def _framed_s(self) -> float:
        return self.heard_s - len(self._rest) / self._rate

    def begin(self) -> None:
        """A new segment begins; the last few samples of the one before belong to it."""
        self._starts = []

    def add(self, samples: Floats) -> None:
        start_s = self._framed_s
        self.heard_s += len(samples) / self._rate
        waiting = np.concatenate([self._rest, samples])
        count = len(waiting) // self._frame
        self._rest = waiting[count * self._frame :]
        frames = waiting[: count * self._frame].reshape(-1, self._frame)
        values = np.sqrt(np.einsum("fs,fs->f", frames, frames) / self._frame)
        loudest = np.maximum(np.maximum.accumulate(values, dtype=np.float64), self._loudest)
        sounding = np.flatnonzero(values > np.maximum(FAINT, FAINT_SHARE * loudest))
        self._starts += (start_s + sounding * FRAME_S).tolist()
        self._loudest = max([self._loudest, *loudest[-1:].tolist()])

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

    def narrowed(self, start_s: float, end_s: float) -> tuple[float, float]:
        """A word's ends in seconds of the stream, moved out of the pause that they lie in.

        A silence shorter than :data:`PAUSE_S` is none, unless nothing sounds before it or so long behind the
        word.
        """
        starts = self._starts
        last = bisect_left(starts, end_s + KNOWN_S - FRAME_S) - 1  # The frame behind may not be there yet.
        if last < 0:
            return start_s, end_s
        first = bisect_right(starts, start_s - FRAME_S + 1e-9)
        if first <= last and (first == 0 or starts[first] - starts[first - 1] > PAUSE_S):
            start_s = max(start_s, starts[first])
        behind = bisect_left(starts, end_s - 1e-9)
        if behind and (behind > last or starts[behind] - starts[behind - 1] > PAUSE_S):
            end_s = min(end_s, starts[behind - 1] + FRAME_S)
        return start_s, max(start_s, end_s)
