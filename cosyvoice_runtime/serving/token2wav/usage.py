"""What the service holds and has done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Usage:
    """
    Attributes:
        utterances: in progress.
        voices: known by key.
        voice_pages: pages held by voices; what remains when no utterance is in progress.
        pages_in_use: pages held by voices and utterances.
        pages: all there are.
        recomputes: utterances so far that found no free page and recompute their earlier chunks.
        eager_calls: calls of the flow so far that no CUDA graph held, where there are graphs.
        batches: calls of the networks so far, by number of utterances.
        voice_hits: utterances so far whose voice had been computed before.
        voice_misses: utterances so far whose voice had not.
    """

    utterances: int
    voices: int
    voice_pages: int
    pages_in_use: int
    pages: int
    recomputes: int
    eager_calls: int
    batches: Mapping[int, int]
    voice_hits: int
    voice_misses: int
