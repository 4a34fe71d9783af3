"""The segments of a whole text on their way to its driver, laid out while those before them are spoken."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from itertools import islice

from cosyvoice_runtime.engine.utterance.followed import FollowedSpeech
from cosyvoice_runtime.engine.utterance.layout import LaidSegment
from cosyvoice_runtime.engine.utterance.request import AudioChunk
from cosyvoice_runtime.engine.utterance.streamed_text import alongside
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm.spoken import FIELD
from cosyvoice_runtime.lm.text_segment import SegmentSink

FIRST = 2
"""Segments that are laid out before the first is spoken: the first, and the one that tells whether it is the
last."""
AHEAD = 4
"""Segments that are laid out behind the one that is spoken, half a minute of speech: a driver waits for none,
and a long text's prompts are never in memory together."""


class SegmentFeed:
    """Gives a sink the segments of a text, a few of them ahead of what is spoken.

    Args:
        segments: from the first that is spoken on; laying one out may take milliseconds.
        characters: of the text, which are spoken with its last segment; None where the segments tell it.
        begun: segments of which something has been spoken, which the text must have.
        followed: takes each segment that is given, if its words are told or checked.

    Raises:
        InvalidInput: one of the first segments can't be spoken, or the text has fewer than have been begun.
    """

    def __init__(
        self,
        segments: Iterator[LaidSegment],
        characters: int | None = None,
        begun: int = 0,
        followed: FollowedSpeech | None = None,
    ) -> None:
        self._segments, self._followed = segments, followed
        self._all_characters = characters
        self._characters: deque[int | None] = deque()
        most = max(FIRST, begun + 1)
        self._held = list(islice(segments, most))
        self._is_complete = len(self._held) < most
        self._spoken = asyncio.Event()
        spoken = sum(segment.prompt is not None for segment in self._held)
        if begun > spoken:
            raise InvalidInput(FIELD, f"{begun} segments", f"the text has {spoken}")

    def begin(self, sink: SegmentSink) -> None:
        """Give the first segments."""
        self._sink = sink
        self._give_known()

    async def chunks(self, chunks: AsyncGenerator[AudioChunk, None]) -> AsyncGenerator[AudioChunk, None]:
        """The chunks that a driver makes of the segments, each with the characters that are spoken by then.

        An error of a later segment ends them.
        """
        spoken = chunks if self._is_complete else alongside(self._give_all(), chunks)
        async with aclosing(spoken):
            async for chunk in spoken:
                if chunk.finish_reason is not None:
                    characters = self._characters.popleft()
                    if chunk.spoken_characters is None:  # One that is cut knows its own.
                        chunk = dataclasses.replace(chunk, spoken_characters=characters)
                    self._spoken.set()
                yield chunk

    async def _give_all(self) -> None:
        """Give the rest of the segments, as those before them are spoken."""
        while not self._is_complete:
            while len(self._characters) >= AHEAD:
                self._spoken.clear()
                await self._spoken.wait()
            further = await asyncio.to_thread(list, islice(self._segments, 1))
            self._held += further
            self._is_complete = not further
            self._give_known()

    def _give_known(self) -> None:
        """Give segments of which it is known whether they are the last that is spoken."""
        last = max(number for number, segment in enumerate(self._held) if segment.prompt is not None)
        for segment in self._held[:last]:
            self._give(segment, segment.characters)
        self._held = self._held[last:]
        if self._is_complete:
            final, *silence = self._held
            self._give(final, final.characters if self._all_characters is None else self._all_characters)
            for segment in silence:
                self._sink.pause(segment.pause_s)
            self._sink.done()

    def _give(self, segment: LaidSegment, characters: int | None) -> None:
        if segment.pause_s:
            self._sink.pause(segment.pause_s)
        if segment.prompt is not None:
            checked = None if self._followed is None else self._followed.begin(segment)
            self._sink.begin(segment.prompt, sound=segment.sound, checked=checked)
            self._characters.append(characters)
