"""When a listener hears the first sound of an utterance, by the rule of Nari's ``tts_bench``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

import numpy as np

from cosyvoice_client import AudioChunk
from cosyvoice_client.timeline import Arrival
from cosyvoice_runtime.arrays import Floats

WINDOW_S, HOP_S = 0.02, 0.01
LOUD = 10 ** (-45 / 20)
"""Root mean square of a window, without its mean, at -45 dBFS."""


class Onset:
    """Finds where speech begins in audio that comes in pieces.

    Attributes:
        at_s: where the first of two loud windows begins, in seconds of audio; None until there are two.
    """

    def __init__(self) -> None:
        self.at_s: float | None = None
        self._held: Floats = np.zeros(0, np.float32)
        self._windows = 0
        self._was_loud = False

    def add(self, samples: Floats, rate: int) -> None:
        """Look at more audio: float samples in [-1, 1]."""
        window, hop = round(rate * WINDOW_S), round(rate * HOP_S)
        self._held = np.concatenate([self._held, samples])
        while self.at_s is None and len(self._held) >= window:
            is_loud = bool(self._held[:window].std() >= LOUD)
            if is_loud and self._was_loud:
                self.at_s = (self._windows - 1) * hop / rate
            self._was_loud = is_loud
            self._windows += 1
            self._held = self._held[hop:]


async def listened(chunks: AsyncIterator[AudioChunk], onset: Onset) -> AsyncIterator[AudioChunk]:
    """The same chunks; each is looked at after whoever asked for it has noted when it came."""
    async for chunk in chunks:
        yield chunk
        if onset.at_s is None:
            onset.add(chunk.samples, chunk.sample_rate)


def heard_at(arrivals: Iterable[Arrival], position_s: float) -> float | None:
    """When who plays from the first chunk on hears a position of the audio; None after its end."""
    before_s = played_until = 0.0
    for at_s, seconds in arrivals:
        begins = max(at_s, played_until)
        if position_s < before_s + seconds:
            return begins + position_s - before_s
        before_s += seconds
        played_until = begins + seconds
    return None
