"""The chunks of an answer with a given silence between each segment and the next one."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator
from contextlib import aclosing

import numpy as np

from cosyvoice_runtime.audio.silence import HOP_S, KEPT_HOPS, SilenceGate
from cosyvoice_runtime.engine.utterance.request import AudioChunk, ToldTokens

KEPT_S = 2 * KEPT_HOPS * HOP_S
"""Seconds of a segment's own silence that stay at the end of one segment and the beginning of the next."""


async def with_gaps(
    chunks: AsyncGenerator[AudioChunk, None], pause_s: float, follows: bool
) -> AsyncGenerator[AudioChunk, None]:
    """The chunks with ``pause_s`` seconds of silence between two segments, at least :data:`KEPT_S`.

    What segments have of their own is left out, but for that before the first one and behind the last. A
    silence that the text asks for is added. Silence waits until speech goes on, and the samples are the same
    however the answer is cut into chunks.

    Args:
        follows: whether a segment that is not in this answer goes before the first one.
    """
    told = ToldTokens()
    gate: SilenceGate | None = None
    chunk, tail, dropped_s = None, np.zeros(0, np.float32), 0.0
    async with aclosing(chunks):
        async for chunk in chunks:
            if chunk.is_pause:
                yield chunk
                continue
            if gate is None:
                gate = SilenceGate(chunk.sample_rate, trims_end=True, trims_start=follows)
                dropped_s, tail = len(tail) / chunk.sample_rate, tail[:0]
                if follows:
                    yield AudioChunk.silent(max(0.0, pause_s - KEPT_S), chunk.sample_rate, chunk.segment)
            samples, ends = gate.push(chunk.samples), chunk.finish_reason is not None
            cut_s = gate.take_trimmed_s()[0]
            told.add(chunk.spoken_tokens, chunk.rows, chunk.are_spoken)
            if ends:
                tail = gate.rest if gate.onset is not None else tail
                samples = np.concatenate([samples, gate.finish()])
                gate, follows = None, True
            if len(samples) or ends:
                cut = cut_s, dropped_s
                yield dataclasses.replace(chunk, samples=samples, trimmed_s=cut, **told.take()._asdict())
                dropped_s = 0.0
    if chunk is not None and len(tail):
        yield AudioChunk(tail, chunk.sample_rate, chunk.segment + 1)
