"""Voices that an utterance changes to, made ready while the voice before them speaks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from cosyvoice_runtime.lm.text_segment import SegmentQueue


class VoicesAhead:
    """Makes the voice of the segment ready that follows the one that is spoken, once for each voice.

    Args:
        own: key of the voice of segments that have none of their own.
        prepare: makes the voice of a key ready; it never raises.
    """

    def __init__(self, own: str, prepare: Callable[[str], Awaitable[None]]) -> None:
        self._own = own
        self._known: set[str] = set()
        self._prepare = prepare
        self._tasks: list[asyncio.Future[None]] = []

    def look(self, speaking: str, segments: SegmentQueue) -> None:
        """Begin with the voice of the next segment, if that is there and its voice is not ready.

        Args:
            speaking: key of the voice that speaks.
        """
        self._known.add(speaking)
        following = segments.following
        if following is None:
            return
        key = self._own if following.sound is None else following.sound.voice_key
        if key not in self._known:
            self._known.add(key)
            self._tasks.append(asyncio.ensure_future(self._prepare(key)))

    def close(self) -> None:
        """Stop what has not ended."""
        for task in self._tasks:
            task.cancel()
