"""One segment of an utterance whose text arrives while it is spoken."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from cosyvoice_runtime.lm.prompt import Prompt

MOST_TEXT = 256
"""Text ids of a segment that comes in pieces: more than the longest segment and the longest clause."""


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
        """No more follow."""
        self._ended = True
        self._news.set()

    def leave(self) -> None:
        """Nobody reads them any more: whoever waits for more gets an end."""
        self._left = True
        self._news.set()

    @property
    def complete(self) -> bool:
        """Whether all of them have been read, to the end."""
        return self._ended and not self._ids and not self._left

    async def get(self) -> list[int] | None:
        """All ids that are there, as soon as there are any; None at the end."""
        while not (self._ids or self._ended or self._left):
            self._news.clear()
            await self._news.wait()
        ids, self._ids = self._ids, []
        return ids if ids and not self._left else None


class TextSegment:
    """
    Attributes:
        prompt: what the speech LM reads; its text is empty when that comes in pieces.
        pieces: the text, when it comes so.
        length: text ids so far.
        characters: of all text of the utterance, those spoken when the segment is; grows until it ends.
    """

    def __init__(self, prompt: Prompt, pieces: TextPieces | None, characters: int = 0) -> None:
        self.prompt = prompt
        self.pieces = pieces
        self.length = len(prompt.text)
        self.characters = characters

    def add(self, text: Sequence[int], characters: int) -> None:
        """Add a clause to a segment whose text comes in pieces."""
        assert self.pieces is not None
        self.pieces.put(text)
        self.length += len(text)
        self.characters = characters
