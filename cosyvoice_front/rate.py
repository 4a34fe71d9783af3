"""The rate of speech in this API."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable
from dataclasses import replace

from cosyvoice_client import AudioChunk
from cosyvoice_client.resampler import ChunkResampler

RATE = 24_000
"""Samples per second, as OpenAI's pcm has them, whatever the server's checkpoint has."""


async def at_front_rate(chunks: AsyncIterable[AudioChunk]) -> AsyncGenerator[AudioChunk, None]:
    """The chunks at :data:`RATE`; a segment of the text and the silence before it are resampled as a whole.

    A silence at the end may bring one chunk more.
    """
    resampler = ChunkResampler(RATE)
    async for chunk in chunks:
        yield (last := resampler.convert(chunk))
    if len(rest := resampler.rest()):
        yield replace(last, samples=rest, words=())
