"""Interface of everything that speaks tokens, whatever its flow can keep."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from cosyvoice_runtime.flow.voice_flow import FlowPrefix, FlowPrompt, VoiceFlow
from cosyvoice_runtime.vocoder.windowed_vocoder import Waveforms

MORE_THAN_ANY = 1_000_000
"""Tokens that no utterance has; as :attr:`AnyToken2Wav.unit_tokens`, a push is never cut."""


class AnyToken2Wav(Protocol):
    """Flow and vocoder of one checkpoint, for many utterances at once."""

    @property
    def flow(self) -> VoiceFlow: ...

    @property
    def unit_tokens(self) -> int:
        """Tokens at whose multiples a push may be cut into several without being heard."""

    @property
    def fused_vocoder(self) -> bool:
        """Whether fused kernels have taken the vocoder's place."""

    @property
    def sample_rate(self) -> int:
        """Samples per second."""

    def open(self, voice: FlowPrompt | FlowPrefix, noise_seed: int, speed: float = 1.0) -> Any:
        """Start of an utterance. Pair with :meth:`close`."""

    def push(self, state: Any, tokens: Sequence[int], last: bool = False) -> None:
        """Append speech tokens; raises InvalidInput for one out of range and then changes nothing."""

    def check(self, state: Any, tokens: Sequence[int]) -> None:
        """Raise what :meth:`push` would raise."""

    def advance(self, states: Sequence[Any]) -> list[npt.NDArray[np.float32]]:
        """Compute all that is ready: samples ``[n]`` of each utterance, after those before."""

    def launch(self, states: Sequence[Any]) -> Waveforms:
        """Begin to :meth:`advance`.

        Returns:
            what waits for the waveforms, of the earliest launch first, and for all else that it has begun.
        """

    def all_or_nothing(self, states: Sequence[Any]) -> AbstractContextManager[object]:
        """Context in which these utterances advance; after an exception they are where they were before.

        Its value keeps what may not be freed while they are under way.
        """

    def broken_stage(self, state: Any) -> str:
        """The first stage that gave NaN or infinity in an utterance whose samples hold some."""

    def held_pages(self, state: Any) -> int:
        """Pages that the utterance alone holds."""

    def lost_pages(self, state: Any) -> int:
        """Pages that the utterance takes to be where it was when it lost them; 0 if it did not."""

    def wanted_pages(self, state: Any) -> int:
        """Pages that :meth:`advance` takes for what is ready, those that were lost included."""

    def give_up(self, state: Any) -> None:
        """Take the pages of an utterance that is not under way: they are made anew when it advances."""

    def close(self, state: Any) -> None:
        """Free what the utterance holds; harmless when repeated."""
