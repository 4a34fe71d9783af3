"""At which speech tokens an utterance is cut into chunks: pure functions of the tokens so far."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Protocol

from cosyvoice_runtime.errors import InvalidInput


class Schedule(Protocol):
    """Where chunks end."""

    def chunk_end(self, prompt_tokens: int, index: int, previous_end: int) -> int:
        """New speech tokens of the utterance up to the end of chunk ``index``.

        Args:
            prompt_tokens: speech tokens of the flow's prompt.
            previous_end: end of the chunk before; 0 for the first.
        """


@dataclass(frozen=True)
class BlockSchedule:
    """Chunks that end where the flow's blocks end, counted from the start of the prompt.

    The first chunk is short: it ends at the first block boundary that is at least ``min_first_tokens``
    after the prompt, so a prompt that ends shortly before a boundary speaks early. Later chunks grow,
    since by then the client has audio to play.

    Attributes:
        block_tokens: tokens of one block of the chunk-causal mask.
        min_first_tokens: fewest tokens of the first chunk; 10 are 0.4 s of audio.
        blocks: blocks of the second, third, ... chunk; the last number repeats.
    """

    block_tokens: int = 25
    min_first_tokens: int = 10
    blocks: tuple[int, ...] = (1, 2, 4)

    def __post_init__(self) -> None:
        if not 1 <= self.min_first_tokens <= 1000:
            raise InvalidInput("min_first_tokens", self.min_first_tokens, "1 to 1000 tokens")
        if not self.blocks or min(self.blocks) < 1:
            raise InvalidInput("blocks", self.blocks, "at least one number, each 1 or more")

    def chunk_end(self, prompt_tokens: int, index: int, previous_end: int) -> int:
        if index == 0:
            boundary = -(-(prompt_tokens + self.min_first_tokens) // self.block_tokens)
            return boundary * self.block_tokens - prompt_tokens
        return previous_end + self.block_tokens * self.blocks[min(index, len(self.blocks)) - 1]


@dataclass(frozen=True)
class UpstreamSchedule:
    """Chunks of CosyVoice2's own streaming: 25 tokens and the prompt's padding, then 50, 100, 100, ..."""

    hop_tokens: int = 25
    max_hop_tokens: int = 100

    def chunk_end(self, prompt_tokens: int, index: int, previous_end: int) -> int:
        if index == 0:
            return self.hop_tokens + -prompt_tokens % self.hop_tokens
        return previous_end + min(self.max_hop_tokens, self.hop_tokens * 2**index)


@dataclass(frozen=True)
class OneChunk:
    """Everything in the last chunk."""

    def chunk_end(self, prompt_tokens: int, index: int, previous_end: int) -> int:  # noqa: ARG002
        return sys.maxsize


class Portions:
    """Collects an utterance's tokens and gives them out chunk by chunk, look-ahead included."""

    def __init__(self, schedule: Schedule, prompt_tokens: int, lookahead_tokens: int) -> None:
        self._schedule = schedule
        self._prompt_tokens = prompt_tokens
        self._lookahead = lookahead_tokens
        self._pending: list[int] = []
        self._received = 0
        self._index = 0
        self._end = schedule.chunk_end(prompt_tokens, 0, 0)

    def push(self, token: int) -> list[int] | None:
        """Add a token; the tokens to synthesise now if a chunk and its look-ahead are complete."""
        self._pending.append(token)
        self._received += 1
        if self._received < self._end + self._lookahead:
            return None
        self._index += 1
        self._end = self._schedule.chunk_end(self._prompt_tokens, self._index, self._end)
        return self.finish()

    def finish(self) -> list[int]:
        """The tokens not given out yet: those of the last chunk when called at the end."""
        portion, self._pending = self._pending, []
        return portion
