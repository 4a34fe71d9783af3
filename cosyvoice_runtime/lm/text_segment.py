"""Segments of an utterance's text on their way to the speech LM, as a whole or in pieces."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cosyvoice_runtime.lm.prompt import Prompt

MOST_TEXT = 256
"""Text ids of a segment that comes in pieces: more than the longest segment and the longest clause."""


class SegmentSink(Protocol):
    """Takes the segments of an utterance in their order. Nothing here waits."""

    def begin(self, prompt: Prompt, in_pieces: bool = False) -> None:
        """Begin the next segment.

        With ``in_pieces`` its text follows by :meth:`add` and :meth:`end`, and the prompt's own text is
        empty.
        """

    def add(self, ids: Sequence[int]) -> None:
        """Add text ids to the segment that was begun last."""

    def end(self) -> None:
        """Say that the text of the segment that was begun last is complete."""

    def done(self) -> None:
        """Say that no further segment follows."""


class TextPieces:
    """Text ids on their way to the speech LM. Used in one event loop."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._ended = False
        self._left = False
        self._news = asyncio.Event()

    def put(self, ids: Sequence[int]) -> None:
        self._ids += ids
        self._news.set()

    def end(self) -> None:
        """Note that no more text follows."""
        self._ended = True
        self._news.set()

    def leave(self) -> None:
        """End the wait of :meth:`get`: the speech LM reads no further text."""
        self._left = True
        self._news.set()

    @property
    def complete(self) -> bool:
        """Whether all text has been read, to the end."""
        return self._ended and not self._ids and not self._left

    async def get(self) -> list[int] | None:
        """All ids that have come, as soon as there are any; None at the end."""
        while not (self._ids or self._ended or self._left):
            self._news.clear()
            await self._news.wait()
        ids, self._ids = self._ids, []
        return ids if ids and not self._left else None


@dataclass(frozen=True)
class TextSegment:
    """A segment of an utterance's text: a whole prompt, or one with an empty text that comes in
    ``pieces``."""

    prompt: Prompt
    pieces: TextPieces | None = None


class SegmentQueue:
    """A :class:`SegmentSink` from which the driver takes the segments. Used in one event loop."""

    def __init__(self) -> None:
        self._segments: asyncio.Queue[TextSegment | None] = asyncio.Queue()
        self._open: TextPieces | None = None

    @classmethod
    def of(cls, prompts: Sequence[Prompt]) -> SegmentQueue:
        """A queue with all segments of a text that is there as a whole."""
        queue = cls()
        for prompt in prompts:
            queue.begin(prompt)
        queue.done()
        return queue

    def begin(self, prompt: Prompt, in_pieces: bool = False) -> None:
        self._open = TextPieces() if in_pieces else None
        self._segments.put_nowait(TextSegment(prompt, self._open))

    def add(self, ids: Sequence[int]) -> None:
        assert self._open is not None, "text without a segment that takes it"
        self._open.put(ids)

    def end(self) -> None:
        if self._open is not None:
            self._open.end()

    def done(self) -> None:
        self._segments.put_nowait(None)

    async def next(self) -> TextSegment | None:
        """The next segment, as soon as it has begun; None after the last."""
        return await self._segments.get()
