"""Requests of a server that is older than this front, and doesn't know that words can be asked for."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from cosyvoice_client import AudioChunk, RefusedError, SpeechRequest

logger = logging.getLogger(__name__)

T = TypeVar("T")
UNKNOWN = "unexpected inference input 'words'"
"""Triton's words for an input that a model doesn't have."""


async def spoken(
    speak: Callable[[SpeechRequest], AsyncGenerator[AudioChunk, None]], request: SpeechRequest
) -> AsyncGenerator[AudioChunk, None]:
    """The speech of a request, asked for without words where the server doesn't know them."""
    try:
        async with aclosing(speak(request)) as chunks:
            async for chunk in chunks:
                yield chunk
    except RefusedError as error:
        async with aclosing(speak(_without_words(request, error))) as chunks:
            async for chunk in chunks:
                yield chunk


@asynccontextmanager
async def opened(
    open_text: Callable[[SpeechRequest], AbstractAsyncContextManager[T]], request: SpeechRequest
) -> AsyncIterator[T]:
    """The speech of a text that comes piece by piece, opened alike."""
    async with AsyncExitStack() as stack:
        try:
            speech = await stack.enter_async_context(open_text(request))
        except RefusedError as error:
            speech = await stack.enter_async_context(open_text(_without_words(request, error)))
        yield speech


def _without_words(request: SpeechRequest, error: RefusedError) -> SpeechRequest:
    """The request to ask again with; the error is raised where that is no use."""
    if not request.words or UNKNOWN not in str(error):
        raise error
    _tell()
    return replace(request, words=None)


@lru_cache(maxsize=1)
def _tell() -> None:
    logger.warning("a server is too old to tell when words are heard: an estimate takes their place")
