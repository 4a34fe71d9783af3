"""The silence before and behind the speech of an answer, which a gate leaves out while the answer streams.

Speech begins where tts-bench of Nari hears it: of windows of 20 ms, one each 10 ms, two in a row have an
effective value of at least -45 dBFS, each without its mean. The answer keeps 20 ms before the first of them.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from cosyvoice_runtime.arrays import Array, Floats
from cosyvoice_runtime.errors import InvalidInput

TrimSilence = Literal["off", "start", "both"]
TRIMS: tuple[TrimSilence, ...] = get_args(TrimSilence)

HOP_S = 0.01
"""Seconds from a window to the next one; a window has two hops."""
AUDIBLE_RMS = 10 ** (-45 / 20)
"""The effective value of a window that is heard, -45 dBFS; full scale is 1."""
KEPT_HOPS = 2
"""Hops of silence that stay before the onset, and behind the last window that is heard: 20 ms."""
SILENT_HOPS = 10
"""Hops that stay of an answer in which nothing is heard, its last ones: 100 ms."""


def check_trim(trim_silence: str) -> None:
    """Raise InvalidInput for a value that is none of `TRIMS`."""
    if trim_silence not in TRIMS:
        raise InvalidInput("trim_silence", trim_silence, f"one of {', '.join(TRIMS)}")


class SilenceGate:
    """Passes an answer on without the silence at its ends, the same however the answer is cut into chunks.

    Until the onset it holds everything back, and from then on nothing. If it also leaves out the end, it
    holds each silence back until speech goes on, with less than 20 ms that no window has judged by then.

    Args:
        rate: samples per second.
        trims_end: whether the silence behind the speech is left out, too.
        trims_start: whether that before it is; otherwise it passes at once.

    Attributes:
        onset: sample in which speech begins, counted from the first one pushed; None before it is heard.
    """

    def __init__(self, rate: int, trims_end: bool = False, trims_start: bool = True) -> None:
        self.onset: int | None = None
        self.rate = rate
        self._hop = round(rate * HOP_S)
        self._trims_end, self._trims_start = trims_end, trims_start
        self._trimmed = [0, 0]
        self._begin()

    def _begin(self) -> None:
        """Hold nothing.

        ``_held`` begins with a hop, at the sample ``_position`` of the stretch. Of it the first ``_done``
        samples have gone out or are left out, and those before ``_end`` may go, also when they come later.
        """
        self._held = np.zeros(0, np.float32)
        self._position = self._done = self._end = 0

    def push(self, samples: Floats) -> Floats:
        """Take the next samples of the answer, float32 ``[n]``, and return those that go out, ``[m]``."""
        if self.onset is not None and not self._trims_end:
            return samples
        self._held = np.concatenate([self._held, samples])
        audible = self._audible()
        if self.onset is None and not self._hears_onset(audible):
            if not self._trims_start:
                return self._pass(len(self._held))
            self._forget(len(self._held) - SILENT_HOPS * self._hop)
            return self._held[:0]
        if self._trims_end:
            heard = np.flatnonzero(audible)
            end = (heard[-1] + 2 + KEPT_HOPS) * self._hop if len(heard) else 0
            self._end = max(self._end, end)
            return self._pass(min(self._end, len(self._held)))
        return self._pass(len(self._held))

    @property
    def rest(self) -> Floats:
        """The samples that are held, float32 ``[n]``: silence, and less than a hop that may be more."""
        return self._held[self._done :]

    @property
    def waiting(self) -> int:
        """Samples that have come, and have neither gone out nor been left out."""
        return len(self.rest) + (self._position if self._is_leaving_out else 0)

    def interrupt(self) -> Floats:
        """Return what is held and stays, before a stretch that is none of the gate's; it judges anew behind.

        Silence before the onset does not stay, and later one does.
        """
        held = self.rest
        if self._is_leaving_out:
            self._trimmed[0] += self.waiting
            held = held[:0]
        self._begin()
        return held

    def finish(self) -> Floats:
        """Return what is left at the end of the answer: nothing, or 100 ms where no speech was heard."""
        held, before = self.rest, self._is_leaving_out
        left = held[-SILENT_HOPS * self._hop :] if before else held[:0]
        self._trimmed[not before] += self.waiting - len(left)
        self._begin()
        return left

    def take_trimmed_s(self) -> tuple[float, float]:
        """Seconds left out before and behind the speech since the last call."""
        before, behind = self._trimmed
        self._trimmed = [0, 0]
        return before / self.rate, behind / self.rate

    @property
    def _is_leaving_out(self) -> bool:
        """Whether nothing has been heard yet, and what comes is left out therefore."""
        return self.onset is None and self._trims_start

    def _audible(self) -> Array:
        """Whether each whole window of what is held is heard, bool ``[windows]``."""
        whole = len(self._held) // self._hop * self._hop
        hops = self._held[:whole].astype(np.float64).reshape(-1, self._hop)
        sums, squares = hops.sum(1), (hops**2).sum(1)
        mean = (sums[:-1] + sums[1:]) / (2 * self._hop)
        return (squares[:-1] + squares[1:]) / (2 * self._hop) - mean**2 >= AUDIBLE_RMS**2

    def _hears_onset(self, audible: Array) -> bool:
        onsets = np.flatnonzero(audible[:-1] & audible[1:])
        if not len(onsets):
            return False
        if self._trims_start:
            self._done = max(0, int(onsets[0]) - KEPT_HOPS) * self._hop
            self._trimmed[0] += self._position + self._done
        self.onset = self._position + int(onsets[0]) * self._hop
        return True

    def _pass(self, end: int) -> Floats:
        passed = self._held[self._done : end]
        self._done = max(self._done, end)
        self._forget(self._done)
        return passed

    def _forget(self, count: int) -> None:
        """Let go of the hops in the first ``count`` samples, except the last whole one: a window needs it."""
        hops = max(0, min(count // self._hop, len(self._held) // self._hop - 1))
        self._held = self._held[hops * self._hop :]
        self._position += hops * self._hop
        self._done, self._end = max(0, self._done - hops * self._hop), self._end - hops * self._hop
