"""The chunks of an answer without the silence at its ends."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator
from contextlib import aclosing

from cosyvoice_runtime.audio.silence import SilenceGate
from cosyvoice_runtime.engine.utterance.request import AudioChunk, ToldTokens


async def trimmed(
    chunks: AsyncGenerator[AudioChunk, None], gate: SilenceGate
) -> AsyncGenerator[AudioChunk, None]:
    """The chunks of an answer with the samples that a gate passes on.

    A silence that the text asks for stays whole. The end of a segment is told at once, with no samples where
    they are held back, and tokens and rows go with the next chunk. The seconds that were left out at the end
    come with a chunk of their own, which has no samples unless all was silent.
    """
    told = ToldTokens()
    chunk, segment, earlier_s, before_s, behind_s = None, -1, 0.0, 0.0, 0.0

    def cut() -> tuple[float, float]:
        """The seconds left out since the last call, those of the chunks that came among them."""
        nonlocal before_s, behind_s
        gated, given = gate.take_trimmed_s(), (before_s, behind_s)
        before_s = behind_s = 0.0
        return gated[0] + given[0], gated[1] + given[1]

    async with aclosing(chunks):
        async for chunk in chunks:
            told.add(chunk.spoken_tokens, chunk.rows, chunk.are_spoken)
            before_s, behind_s = before_s + chunk.trimmed_s[0], behind_s + chunk.trimmed_s[1]
            if chunk.is_pause:
                if len(held := gate.interrupt()):
                    held_s = len(held) / chunk.sample_rate
                    yield AudioChunk(held, chunk.sample_rate, chunk.segment, earlier_s=held_s)
                yield dataclasses.replace(chunk, trimmed_s=cut())
                continue
            if chunk.segment != segment:
                segment, earlier_s = chunk.segment, gate.waiting / chunk.sample_rate
            samples = gate.push(chunk.samples)
            if len(samples) or chunk.finish_reason is not None:
                chunk = dataclasses.replace(chunk, samples=samples, earlier_s=earlier_s, trimmed_s=cut())
                yield dataclasses.replace(chunk, **told.take()._asdict())
                earlier_s = 0.0
    if chunk is not None:
        segment = chunk.segment + (not chunk.is_pause)  # As that of a pause at the end.
        rest = AudioChunk(gate.finish(), chunk.sample_rate, segment, trimmed_s=cut())
        if len(rest.samples) or any(rest.trimmed_s):
            yield rest
