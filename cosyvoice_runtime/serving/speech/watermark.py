"""A watermark in all speech that leaves the server, for detectors of synthetic speech.

Off by default. A deployment names a class of its own (``cosyvoice2.watermark``), which marks every chunk
before it goes to any client, so that no route and no format is without it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from importlib import import_module
from typing import Protocol

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.engine.utterance.request import AudioChunk
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.settings.cosyvoice2 import NO_CLASS


class Watermark(Protocol):
    """The watermark of one utterance, which may keep earlier samples.

    Streamed speech stays equal to offline speech as long as a mark does not depend on how the samples are
    divided into chunks.
    """

    def mark(self, samples: Floats) -> Floats:
        """The next samples with the watermark: as many float32 ``[n]`` in [-1, 1]."""


MakeWatermark = Callable[[int], Watermark]
"""A function that starts the watermark of an utterance, given its samples per second."""


def find_watermark(name: str) -> MakeWatermark | None:
    """The class that a setting names as ``MODULE:CLASS``, None for ``none``; an InvalidInput if it is
    missing."""
    if name == NO_CLASS:
        return None
    module, _, attribute = name.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InvalidInput("cosyvoice2.watermark", name, f"MODULE:CLASS ({error})") from error


async def marked(
    chunks: AsyncGenerator[AudioChunk, None], watermark: Watermark
) -> AsyncGenerator[AudioChunk, None]:
    """The chunks of an utterance with its watermark, which is computed outside the event loop."""
    async with aclosing(chunks):
        async for chunk in chunks:
            samples = await asyncio.to_thread(watermark.mark, chunk.samples)
            yield dataclasses.replace(chunk, samples=samples)
