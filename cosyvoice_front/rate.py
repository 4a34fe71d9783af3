"""The rate of speech in this API."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable
from dataclasses import replace

import numpy as np
import soxr

from cosyvoice_client import AudioChunk

RATE = 24_000
"""Samples per second, as OpenAI's pcm has them, whatever the server's checkpoint has."""


async def at_front_rate(chunks: AsyncIterable[AudioChunk]) -> AsyncGenerator[AudioChunk, None]:
    """The chunks at :data:`RATE`; a segment of the text and the silence before it are resampled as a whole.

    A silence at the end may bring one chunk more.
    """
    resampler: soxr.ResampleStream | None = None
    async for chunk in chunks:
        if chunk.sample_rate == RATE:
            yield chunk
            continue
        if resampler is None:
            resampler = soxr.ResampleStream(chunk.sample_rate, RATE, 1, dtype="float32")
        samples = resampler.resample_chunk(chunk.samples, last=bool(chunk.finish_reason))
        if chunk.finish_reason:
            resampler = None
        yield (at_rate := replace(chunk, samples=samples, sample_rate=RATE))
    if resampler is not None:
        yield replace(at_rate, samples=resampler.resample_chunk(np.zeros(0, np.float32), last=True))
