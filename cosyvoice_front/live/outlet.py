"""The audio of a context on its way to the listener."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any

import numpy as np

from cosyvoice_client.encoders import Encoder, Samples
from cosyvoice_front.live.happenings import Audio, Tell
from cosyvoice_front.rate import RATE
from cosyvoice_front.spoken import cut_off, run
from cosyvoice_runtime.audio.fade import FadeOut

MOST_SAMPLES = RATE
"""In one message, so that none is too large for a client: a second is 192 KB at most."""


class Outlet:
    """Encodes samples and tells the listener, piece by piece.

    A piece that is on its way arrives also when the task is cancelled that plays it, so that what a listener
    has is without a gap when the speech is cut.

    Args:
        pool: threads that encode audio.
        tell: takes the audio, in order.
    """

    def __init__(self, encoder: Encoder, pool: Executor, tell: Tell) -> None:
        self._encoder = encoder
        self._pool = pool
        self._tell = tell
        self._fade = FadeOut(RATE)
        self._sending: asyncio.Future[None] | None = None
        self._is_heard = self._has_ended = False

    async def play(self, samples: Samples) -> None:
        """Play the next samples, float32 ``[n]`` of 24 kHz; behind a cut nothing is played."""
        cuts = range(MOST_SAMPLES, len(samples), MOST_SAMPLES)
        for piece in np.split(samples, cuts):
            if len(piece) and not self._has_ended:
                await self._send(self._play(piece))

    async def finish(self) -> None:
        """Play what the encoder has held back."""
        if not self._has_ended:
            self._has_ended = True
            await self._send(self._finish())

    async def cut(self) -> None:
        """End the audio with 5 ms in which it fades out. What has ended, or was not heard yet, just ends."""
        is_cut, self._has_ended = not self._has_ended, True
        if self._sending is not None:
            await asyncio.wait([self._sending])
        if is_cut and self._is_heard:
            await self._send(self._cut())

    def close(self) -> None:
        """Let go of what it holds, when nothing is played any more."""
        if self._sending is not None:
            self._sending.cancel()
        with suppress(RuntimeError):  # of a pool that has been shut down
            self._pool.submit(self._encoder.close)  # a thread may still be in it

    async def _send(self, sending: Coroutine[Any, Any, None]) -> None:
        self._sending = asyncio.ensure_future(sending)
        await asyncio.shield(self._sending)

    async def _play(self, samples: Samples) -> None:
        self._fade.hear(samples)
        await self._hand_on(await run(self._encoder, self._encoder.feed, self._pool, samples))

    async def _finish(self) -> None:
        await self._hand_on(await run(self._encoder, self._encoder.finish, self._pool))

    async def _cut(self) -> None:
        await self._hand_on(await cut_off(self._encoder, self._fade, self._pool))

    async def _hand_on(self, data: bytes) -> None:
        if data:
            self._is_heard = True
            await self._tell(Audio(data))
