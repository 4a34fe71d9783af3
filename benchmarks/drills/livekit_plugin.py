"""LiveKit's plugin for Cartesia, unmodified, before a front."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

import aiohttp
import numpy as np
import numpy.typing as npt
from livekit import agents
from livekit.plugins import cartesia

Result = TypeVar("Result")
TIMEOUT_S = 10.0
"""As the plugin has it."""


class Listening(Protocol):
    """A front, whoever runs it."""

    @property
    def url(self) -> str: ...


def speaking(front: Listening, use: Callable[[Any], Awaitable[Result]], **options: Any) -> Result:
    """Return the result of ``use(tts)`` with a plugin that speaks through the front."""

    async def run() -> Result:
        async with aiohttp.ClientSession() as session:
            given = {"voice": "default", **options}
            tts = cartesia.TTS(**given, base_url=front.url, http_session=session)
            try:
                return await use(tts)
            finally:
                await tts.aclose()

    return asyncio.run(run())


def once(retries: int = 0, timeout_s: float = TIMEOUT_S) -> agents.APIConnectOptions:
    """Options of a plugin that doesn't try again."""
    return agents.APIConnectOptions(max_retry=retries, timeout=timeout_s)


async def stream(
    tts: Any, text: str, options: agents.APIConnectOptions
) -> tuple[npt.NDArray[np.int16], list[Any]]:
    """Samples and timed words of a text that an agent speaks while it comes, word by word."""
    samples, words = [], []
    async with tts.stream(conn_options=options) as speech:
        for piece in text.split(" "):
            speech.push_text(piece + " ")
        speech.end_input()
        async for event in speech:
            samples.append(np.frombuffer(event.frame.data, np.int16))
            words += event.frame.userdata.get(agents.types.USERDATA_TIMED_TRANSCRIPT, [])
    return np.concatenate(samples), words
