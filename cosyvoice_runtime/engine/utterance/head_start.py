"""A first chunk that waits until the second will follow in time.

The first chunk is short, so that it is there soon: a third of a second and less is heard of it. A machine
that needs longer than that for the next one would be heard to stop right after it began. Sent a little
later, while the next one is being made, the same audio is heard without a gap.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress

from cosyvoice_runtime.engine.utterance.request import AudioChunk
from cosyvoice_runtime.engine.utterance.utterance import UNHEARD_S

LONGEST_S = 2.0
"""A machine that is slower still can't be made up for."""
MEAN_SHARE, DEVIATION_SHARE = 1 / 8, 1 / 4
"""Of the latest utterance in what is expected, as in TCP's estimate of a round trip (RFC 6298)."""
DEVIATIONS = 1.0
"""Mean deviations above the mean. RFC 6298 takes four: a packet sent twice costs more than a pause of
a few milliseconds, which some listeners may hear."""


class SecondChunk:
    """How long after the first chunk the second one is there, as the latest utterances tell."""

    def __init__(self) -> None:
        self._mean = self._deviation = 0.0

    @property
    def expected_s(self) -> float:
        """Seconds that are seldom exceeded; 0 when nothing is known."""
        return self._mean + DEVIATIONS * self._deviation

    def took(self, seconds: float) -> None:
        """Learn from an utterance."""
        if not self._mean:
            self._mean, self._deviation = seconds, seconds / 2
            return
        self._deviation += DEVIATION_SHARE * (abs(seconds - self._mean) - self._deviation)
        self._mean += MEAN_SHARE * (seconds - self._mean)


async def with_head_start(
    chunks: AsyncGenerator[AudioChunk, None],
    next_chunk_s: Callable[[], float],
    took: Callable[[float], None] = lambda _: None,
    held: Callable[[float], None] = lambda _: None,
) -> AsyncGenerator[AudioChunk, None]:
    """The chunks, the first of them held back for as long as the next one is expected to take beyond its own
    audio, or until the next one is there.

    Args:
        next_chunk_s: seconds from the first chunk to the second, as the machine is expected to make it; 0
            when nothing is known.
        took: told the seconds that it was.
        held: told the seconds for which the first one was held back.
    """
    async with aclosing(chunks):
        first = await anext(chunks, None)
        if first is None:
            return
        longest_s = next_chunk_s() - first.seconds - UNHEARD_S
        second, begun_s = asyncio.ensure_future(_timed(anext(chunks, None), took)), time.monotonic()
        try:
            await asyncio.wait({second}, timeout=min(max(longest_s, 0.0), LONGEST_S))
            held(time.monotonic() - begun_s)
            yield first
            chunk = await second
        finally:
            second.cancel()  # of a listener who left: the generator can't be closed while it runs
            with suppress(asyncio.CancelledError, Exception):
                await second
        if chunk is not None:
            yield chunk
            async for chunk in chunks:
                yield chunk


async def _timed(chunk: Awaitable[AudioChunk | None], took: Callable[[float], None]) -> AudioChunk | None:
    begun_s = time.monotonic()
    made = await chunk
    if made is not None:
        took(time.monotonic() - begun_s)
    return made
