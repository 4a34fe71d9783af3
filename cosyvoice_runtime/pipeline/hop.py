"""How much speech each chunk holds while a client listens: pure functions."""

from __future__ import annotations

from dataclasses import dataclass

from cosyvoice_runtime.checkpoint.config import FlowConfig
from cosyvoice_runtime.settings import CosyVoice2Settings


@dataclass(frozen=True)
class HopPolicy:
    """Chunks end where the flow's blocks end and grow with the audio the client still has to play.

    A chunk leaves when all of it is computed. So a client with little left to play gets a block at a time,
    however many tokens are there already; one that is well supplied can wait for a longer chunk, which costs
    less work for each second of speech.

    Attributes:
        block_tokens: tokens of one block of the chunk-causal mask.
        lookahead_tokens: tokens after a block that must be known.
        min_first_tokens: fewest tokens of the first chunk.
        hop_tokens: tokens of a chunk when the client is about to run dry.
        max_hop_tokens: tokens of a chunk when the client is well supplied.
        token_rate: tokens per second.
        cut_prompts: whether a longer prompt is cut at its start, so that the first chunk needs no more than
            ``min_first_tokens``.
    """

    block_tokens: int
    lookahead_tokens: int
    min_first_tokens: int
    hop_tokens: int
    max_hop_tokens: int
    token_rate: int
    cut_prompts: bool = False

    @classmethod
    def of(cls, flow: FlowConfig, settings: CosyVoice2Settings) -> HopPolicy:
        """What the settings say, for a checkpoint's flow."""
        return cls(
            block_tokens=flow.encoder.chunk_tokens,
            lookahead_tokens=flow.lookahead_tokens,
            min_first_tokens=settings.first_hop_tokens,
            hop_tokens=settings.hop_tokens,
            max_hop_tokens=settings.max_hop_tokens,
            token_rate=flow.token_rate,
            cut_prompts=settings.cut_prompts,
        )

    def chunk_end(self, prompt_tokens: int, previous_end: int, received: int, cushion_s: float) -> int | None:
        """New tokens up to the end of the chunk that can and should go out now; None is not yet.

        Args:
            prompt_tokens: speech tokens of the flow's prompt.
            previous_end: end of the chunk before; 0 before the first.
            received: new tokens so far.
            cushion_s: seconds of audio sent and not yet played.
        """
        end = self._boundary_after(prompt_tokens, previous_end + self._fewest(previous_end, cushion_s))
        return end if end + self.lookahead_tokens <= received else None

    def first_tokens(self, prompt_tokens: int) -> int:
        """New tokens that the first chunk needs."""
        return self._boundary_after(prompt_tokens, self.min_first_tokens) + self.lookahead_tokens

    def _fewest(self, previous_end: int, cushion_s: float) -> int:
        """Tokens of the next chunk, up to a block's end: half of what the client can play meanwhile."""
        if previous_end == 0:
            return self.min_first_tokens
        blocks = int(cushion_s / 2 * self.token_rate / self.block_tokens)
        return max(1, min(max(self.hop_tokens, blocks * self.block_tokens), self.max_hop_tokens))

    def _boundary_after(self, prompt_tokens: int, end: int) -> int:
        """First block boundary at or after ``end`` new tokens."""
        return -(-(prompt_tokens + end) // self.block_tokens) * self.block_tokens - prompt_tokens
