"""A first chunk that waits until the second will follow in time.

The first chunk is short, so that it is there soon: a third of a second in the published model. A machine that
needs longer than that for the next one would be heard to stop right after it began. Sent a little later,
while the next one is being made, the same audio is heard without a gap.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress

from cosyvoice_runtime.pipeline.request import AudioChunk

LONGEST_S = 2.0
"""A machine that is slower still can't be made up for."""


async def with_head_start(
    chunks: AsyncGenerator[AudioChunk, None], next_chunk_s: Callable[[], float]
) -> AsyncGenerator[AudioChunk, None]:
    """The chunks, the first of them held back for as long as the next one is expected to take beyond its own
    audio, or until the next one is there.

    Args:
        next_chunk_s: seconds from the first chunk to the second, as the machine is expected to make it; 0
            when nothing is known.
    """
    async with aclosing(chunks):
        first = await anext(chunks, None)
        if first is None:
            return
        second = asyncio.ensure_future(anext(chunks, None))
        try:
            await asyncio.wait({second}, timeout=min(max(next_chunk_s() - first.seconds, 0.0), LONGEST_S))
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
