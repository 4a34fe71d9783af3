"""The sizes of an utterance's chunks, and the moments at which they go out."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from cosyvoice_runtime.checkpoint.config_flow import FlowConfig
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.settings import CosyVoice2Settings
from cosyvoice_runtime.settings.token2wav import CPU_HOP_GROWTH
from cosyvoice_runtime.token2wav.token2wav import MORE_THAN_ANY, cut_prompt
from cosyvoice_runtime.voice.voice import Voice

MOST_CUT = 0.2
"""The share of a reference that may be cut. Cutting a third of two to three seconds costs 1.1 +- 1.0 points
of word errors, and nothing measurable of likeness."""
LEAST_WAIT_S = 0.001
"""Time added to a wait, so that the cushion is below a limit after it and not at it."""


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
        hop_tokens: tokens of a chunk when the client has little left to play.
        max_hop_tokens: tokens of a chunk when the client is well supplied.
        token_rate: tokens per second.
        growth: seconds of the next chunk for each second that the client still has to play; the engine
            sets it for its device.
        most_cut: the share of a prompt that may be cut at its start, so that the first chunk needs no more
            than ``min_first_tokens``. A prompt of which this would be more stays whole.
        is_heard: whether a client listens meanwhile, for whom the tokens so far go out in time.
        fixed_chunks: whether an utterance sounds different with other chunks. They then begin after the
            prompt.

    Raises:
        InvalidInput: prompts are to be cut where chunks don't depend on them; a chunk would have no tokens.
    """

    block_tokens: int
    lookahead_tokens: int
    min_first_tokens: int
    hop_tokens: int
    max_hop_tokens: int
    token_rate: int
    growth: float = CPU_HOP_GROWTH
    is_heard: bool = True
    most_cut: float = 0.0
    fixed_chunks: bool = False

    def __post_init__(self) -> None:
        if self.min_first_tokens < 1:
            raise InvalidInput("first_hop", self.min_first_tokens, "at least 1 token")
        if self.most_cut and self.fixed_chunks:
            raise InvalidInput("cut_prompts", True, "this checkpoint's chunks don't depend on the prompt")

    @classmethod
    def of(cls, flow: FlowConfig, settings: CosyVoice2Settings) -> HopPolicy:
        """The policy of the settings for a checkpoint's flow."""
        return cls(
            block_tokens=flow.encoder.chunk_tokens,
            lookahead_tokens=flow.lookahead_tokens,
            min_first_tokens=settings.first_hop,
            hop_tokens=settings.hop_tokens,
            max_hop_tokens=settings.max_hop_tokens,
            token_rate=flow.token_rate,
            most_cut=0.0 if flow.fixed_chunks else MOST_CUT,
            fixed_chunks=flow.fixed_chunks,
        )

    def of_segment(self, speed: float, streaming: bool) -> HopPolicy:
        """The policy of a segment at this speed, for a client that listens meanwhile or gets all at once.

        Where chunks are audible, a segment is one chunk if it is answered as a whole or at another speed:
        stretched chunks don't overlap by what they are faded over.
        """
        if self.fixed_chunks and (speed != 1.0 or not streaming):
            return dataclasses.replace(self, min_first_tokens=MORE_THAN_ANY)
        return dataclasses.replace(self, is_heard=streaming)

    def chunk_end(self, prompt_tokens: int, previous_end: int, received: int, cushion_s: float) -> int | None:
        """New tokens up to the end of the chunk that can and should go out now; None if no chunk should.

        Args:
            prompt_tokens: speech tokens of the flow's prompt.
            previous_end: end of the chunk before; 0 before the first.
            received: new tokens so far.
            cushion_s: seconds of audio sent and not yet played.
        """
        end = self._boundary_after(prompt_tokens, previous_end + self._fewest(previous_end, cushion_s))
        return end if end + self.lookahead_tokens <= received else None

    def wait_s(self, prompt_tokens: int, previous_end: int, received: int, cushion_s: float) -> float | None:
        """Seconds until the received tokens should go out though no more come.

        Called where :meth:`chunk_end` is None. None stands for no such time: more tokens are needed, or no
        client listens.
        """
        if not (previous_end and self.is_heard):
            return None
        if self.chunk_end(prompt_tokens, previous_end, received, 0.0) is None:
            return None
        blocks = (received - self.lookahead_tokens - previous_end) // self.block_tokens
        return max(cushion_s - (blocks + 1) * self._block_cushion_s, 0.0) + LEAST_WAIT_S

    def flow_voice(self, voice: Voice) -> Voice:
        """The voice in the form that the flow takes, with its prompt cut for an early first chunk."""
        return cut_prompt(voice, self.block_tokens, self.min_first_tokens, self.most_cut)

    def first_tokens(self, prompt_tokens: int) -> int:
        """New tokens that the first chunk needs."""
        return self._boundary_after(prompt_tokens, self.min_first_tokens) + self.lookahead_tokens

    def _fewest(self, previous_end: int, cushion_s: float) -> int:
        """Tokens of the next chunk, up to a block's end, by what the client can play meanwhile."""
        if previous_end == 0:
            return self.min_first_tokens
        blocks = int(cushion_s / self._block_cushion_s)
        return max(1, min(max(self.hop_tokens, blocks * self.block_tokens), self.max_hop_tokens))

    @property
    def _block_cushion_s(self) -> float:
        """The seconds that a client has left to play for each block of the next chunk."""
        return self.block_tokens / self.token_rate / self.growth

    def _boundary_after(self, prompt_tokens: int, end: int) -> int:
        """First block boundary at or after ``end`` new tokens."""
        prompt_tokens = 0 if self.fixed_chunks else prompt_tokens
        return -(-(prompt_tokens + end) // self.block_tokens) * self.block_tokens - prompt_tokens
