"""What an utterance needs of the speech LM and of token2wav, wherever these run."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.lm.generation import FinishReason
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.text_segment import TextPieces


@dataclass(frozen=True)
class TokenGroup:
    """Speech tokens that arrived together; the last group says why they ended."""

    tokens: Sequence[int]
    finish_reason: FinishReason | None = None


@dataclass(frozen=True)
class WaveSettings:
    """How a segment sounds; the same in every call for it.

    Attributes:
        voice_key: of the utterance's voice, as the flow gets it.
        continues: it is a later segment of what somebody listens to.
    """

    voice_key: str
    noise_seed: int
    speed: float = 1.0
    continues: bool = False


class Stages(Protocol):
    """The speech LM and token2wav for one request, whose voice they know."""

    def generate(
        self,
        prompt: Prompt,
        sampling: SamplingOptions,
        utterance_id: str,
        first_tokens: int,
    ) -> AsyncGenerator[TokenGroup, None]:
        """Speech tokens as they are drawn, at least ``first_tokens`` in the first group.

        Closing the generator before its end stops the speech LM; it returns at once and never raises.
        """

    def generate_from_pieces(
        self,
        prompt: Prompt,
        pieces: TextPieces,
        sampling: SamplingOptions,
        utterance_id: str,
        first_tokens: int,
    ) -> AsyncGenerator[TokenGroup, None]:
        """Speech tokens of text that comes in pieces, as :meth:`generate`; the prompt's own text is empty.

        Length limits follow from the length of all text, within ``ceiling`` and ``max_tokens``.
        """

    async def wave(
        self,
        utterance_id: str,
        tokens: Sequence[int],
        position: int,
        last: bool,
        settings: WaveSettings,
        cushion_s: float,
    ) -> Floats:
        """The next samples, float32 ``[n]``, of an utterance; ``position`` tokens of it went before.

        Args:
            cushion_s: seconds of audio that the listener still has to play; the less, the more urgent.
        """

    def drop(self, utterance_id: str) -> None:
        """Have token2wav forget an utterance that will not be finished; returns at once and never raises."""
