"""Which layers of a network look back, and where what they look back on lies."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tail:
    """Place of one convolution's last input frames in the flat tail of an utterance."""

    offset: int
    frames: int
    channels: int

    @property
    def size(self) -> int:
        return self.frames * self.channels


class PastLayout:
    """Numbers the layers that look back; filled while a network is built."""

    def __init__(self, heads: int, head_dim: int) -> None:
        self.heads = heads
        self.head_dim = head_dim
        self.tail_size = 0
        self.attentions = 0

    def add_tail(self, frames: int, channels: int) -> Tail:
        """Reserve room for ``frames`` input frames of a convolution."""
        tail = Tail(self.tail_size, frames, channels)
        self.tail_size += tail.size
        return tail

    def add_attention(self) -> int:
        """Number the next attention layer."""
        self.attentions += 1
        return self.attentions - 1
