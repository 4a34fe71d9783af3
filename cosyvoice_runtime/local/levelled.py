"""Chunks of an utterance brought to a loudness."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from cosyvoice_client.chunk import AudioChunk
from cosyvoice_runtime.audio.levelling import Leveller, make_leveller


def levelled(chunks: Iterable[AudioChunk], target_lufs: float | None, *, whole: bool) -> Iterator[AudioChunk]:
    """Yield the chunks of one rate at a loudness; None leaves them as they are.

    What is held back comes as one chunk more. What chunks tell comes with them, though nothing of them may be
    able to leave yet.

    Args:
        chunks: those of one utterance.
        target_lufs: the loudness, -40 to -10 LUFS.
        whole: whether all of it gets one gain, and leaves at its end.
    """
    if target_lufs is None:
        yield from chunks
        return
    leveller: Leveller | None = None
    for chunk in chunks:
        leveller = leveller or make_leveller(chunk.sample_rate, target_lufs, whole=whole)
        last = chunk
        samples = leveller.push(chunk.samples)
        if len(samples) or chunk.finish_reason or chunk.verification is not None:
            yield replace(chunk, samples=samples)
    if leveller is not None:
        yield replace(last, samples=leveller.finish(), finish_reason="", verification=None)
