"""Voices that an utterance changes to, made ready while the voice before them speaks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from cosyvoice_runtime.lm.text_segment import SegmentQueue


class VoicesAhead:
    """Makes the voice of the segment ready that follows the one that is spoken, once for each voice.

    Args:
        own: key of the voice that speaks first.
        prepare: makes the voice of a key ready; it never raises.
    """

    def __init__(self, own: str, prepare: Callable[[str], Awaitable[None]]) -> None:
        self._known = {own}
        self._prepare = prepare
        self._tasks: list[asyncio.Future[None]] = []

    def look(self, segments: SegmentQueue) -> None:
        """Begin with the voice of the next segment, if it is there and has one that is not ready."""
        following = segments.following
        if following is None or following.sound is None or following.sound.voice_key in self._known:
            return
        self._known.add(following.sound.voice_key)
        self._tasks.append(asyncio.ensure_future(self._prepare(following.sound.voice_key)))

    def close(self) -> None:
        """Stop what has not ended."""
        for task in self._tasks:
            task.cancel()
