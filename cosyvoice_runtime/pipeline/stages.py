"""The other models, as an utterance sees them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from cosyvoice_runtime.lm.limits import FinishReason
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.sampling_options import SamplingOptions
from cosyvoice_runtime.voice.voice import Voice


@dataclass(frozen=True)
class TokenGroup:
    """Speech tokens that arrived together; the last group says why they ended."""

    tokens: Sequence[int]
    finish_reason: FinishReason | None = None


@dataclass(frozen=True)
class WaveSettings:
    """How an utterance sounds; the same in every call for it."""

    voice: Voice
    noise_seed: int
    speed: float = 1.0


class Stages(Protocol):
    """Calls block until there is an answer and raise the error of the stage."""

    def speech_tokens(self, samples: Tensor) -> Tensor:
        """16 kHz samples float32 ``[n]`` to speech tokens int32 ``[m]``."""

    def speaker_embedding(self, samples: Tensor) -> Tensor:
        """16 kHz samples float32 ``[n]`` to a speaker embedding float32 ``[D]``."""

    def generate(
        self, prompt: Prompt, sampling: SamplingOptions, request_id: str, first_tokens: int
    ) -> Iterator[TokenGroup]:
        """Speech tokens as they are drawn, so many at first. The iterator must be read to its end."""

    def stop(self, request_id: str) -> None:
        """End a running :meth:`generate`, whose iterator then ends soon."""

    def wave(
        self,
        utterance_id: str,
        tokens: Sequence[int],
        position: int,
        last: bool,
        settings: WaveSettings,
        cushion_s: float,
    ) -> Tensor:
        """The next samples float32 ``[n]`` of an utterance; ``position`` tokens of it went before.

        Those who have less audio left to play, ``cushion_s`` seconds, are served first.
        """

    def drop(self, utterance_id: str) -> None:
        """Forget an utterance that will not be finished."""
