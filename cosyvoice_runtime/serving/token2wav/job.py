"""A chunk on its way through the queue, in as many parts as its turns allow."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from cosyvoice_runtime.serving.token2wav.chunk import WaveChunk
from cosyvoice_runtime.serving.token2wav.service import Waveform, WaveOutcome


@dataclass(eq=False)
class WaveJob:
    """
    Attributes:
        deliver: takes the outcome, once.
        deadline: when the listener runs dry, by the scheduler's clock.
        needs_voice: the networks have to run over the prompt of its voice first.
    """

    chunk: WaveChunk
    deliver: Callable[[WaveOutcome], None]
    deadline: float
    needs_voice: bool = False
    _done: int = 0
    _waves: list[Waveform] = field(default_factory=list)

    @property
    def tokens_left(self) -> int:
        return len(self.chunk.tokens) - self._done

    def part(self, tokens: int) -> WaveChunk:
        """The next ``tokens`` tokens as a chunk of their own: any cut gives the same audio."""
        start, end = self._done, self._done + tokens
        whole = self.chunk
        last = whole.last and end == len(whole.tokens)
        return dataclasses.replace(
            whole,
            tokens=whole.tokens[start:end],
            rest=() if start else whole.tokens[end:],
            position=whole.position + start,
            last=last,
        )

    def take(self, tokens: int, outcome: WaveOutcome) -> WaveOutcome | None:
        """Note what came of the last part; the whole chunk's outcome, or None while parts are left."""
        if isinstance(outcome, Exception):
            return outcome
        self._done += tokens
        self._waves.append(outcome)
        return None if self.tokens_left else np.concatenate(self._waves)
