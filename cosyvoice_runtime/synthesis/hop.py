"""How much speech each chunk holds while a client listens: pure functions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HopPolicy:
    """Chunks end where the flow's blocks end and grow with the audio the client still has to play.

    A client with little left to play gets the next block as soon as it exists; one that is well supplied
    can wait for a longer chunk, which costs less work for each second of speech. Tokens that have piled
    up meanwhile go out together.

    Attributes:
        block_tokens: tokens of one block of the chunk-causal mask.
        lookahead_tokens: tokens after a block that must be known.
        min_first_tokens: fewest tokens of the first chunk.
        hop_tokens: tokens of a chunk when the client is about to run dry.
        max_hop_tokens: most tokens of any chunk but the first.
        token_rate: tokens per second.
    """

    block_tokens: int = 25
    lookahead_tokens: int = 3
    min_first_tokens: int = 10
    hop_tokens: int = 25
    max_hop_tokens: int = 100
    token_rate: int = 25

    def chunk_end(self, prompt_tokens: int, previous_end: int, received: int, cushion_s: float) -> int | None:
        """New tokens up to the end of the chunk that can and should go out now; None is not yet.

        Args:
            prompt_tokens: speech tokens of the flow's prompt.
            previous_end: end of the chunk before; 0 before the first.
            received: new tokens so far.
            cushion_s: seconds of audio sent and not yet played.
        """
        available = self._boundary_before(prompt_tokens, received - self.lookahead_tokens)
        least = previous_end + self._least(previous_end, cushion_s)
        if available < least:
            return None
        if previous_end == 0:
            return available
        most = self._boundary_before(prompt_tokens, previous_end + self.max_hop_tokens)
        return max(min(available, most), least)

    def _least(self, previous_end: int, cushion_s: float) -> int:
        """Fewest tokens of the next chunk: half of what the client can play meanwhile, in blocks."""
        if previous_end == 0:
            return self.min_first_tokens
        blocks = int(cushion_s / 2 * self.token_rate / self.block_tokens)
        return max(1, min(max(self.hop_tokens, blocks * self.block_tokens), self.max_hop_tokens))

    def _boundary_before(self, prompt_tokens: int, end: int) -> int:
        """Last block boundary at or before ``end`` new tokens; it may be negative."""
        return (prompt_tokens + end) // self.block_tokens * self.block_tokens - prompt_tokens
