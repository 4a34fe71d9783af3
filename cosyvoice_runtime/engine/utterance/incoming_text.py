"""The text of one utterance as a client sends it, piece by piece, while it is spoken."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import Protocol

from cosyvoice_runtime.errors import ClientGoneError, InvalidInput, WithdrawnError
from cosyvoice_runtime.process.event_loop import in_daemon_thread
from cosyvoice_runtime.text.validate import MAX_TARGET_CHARACTERS, require_characters

FIELD = "target_text"
MAX_BUFFERED_BYTES = 256 << 10
"""The most bytes of text in UTF-8 that wait to be spoken."""


class TextMark(Enum):
    """A mark between pieces of text."""

    FLUSH = "flush"
    """All text so far is spoken to its end; what follows begins a new segment."""
    END = "end"
    """All text so far is spoken to its end, and nothing follows."""


class TextSource(Protocol):
    """The source of an utterance's text."""

    async def next(self) -> str | TextMark:
        """The next piece or mark; nothing follows an end. An error ends the utterance."""

    async def until_cancelled(self) -> None:
        """Wait after the text's end until the utterance is cancelled, and raise a ClientGoneError; may return
        at once."""

    def spoke(self) -> None:
        """Note that a part of the text has just been spoken."""


class GivenText:
    """Text from an iterable, which may block for any time; ``text`` is all pieces so far."""

    def __init__(self, pieces: Iterable[str | TextMark]) -> None:
        self._pieces = iter(pieces)
        self.text = ""

    async def next(self) -> str | TextMark:
        """The next piece or mark; an InvalidInput tells of a malformed piece, or of too long a text."""
        item = await in_daemon_thread(partial(next, self._pieces, TextMark.END))
        if isinstance(item, str):
            require_characters(FIELD, item, MAX_TARGET_CHARACTERS, before=len(self.text))
            self.text += item
        return item

    async def until_cancelled(self) -> None:
        """Return at once: the iterable's owner closes the utterance itself."""

    def spoke(self) -> None:
        """Do nothing: this text has no timeout."""


class IncomingText:
    """Pieces and marks in the order they came. Used in one event loop.

    Args:
        max_characters: most characters of all pieces together.
        idle_s: longest time in which no text comes and nothing is spoken.
        now: clock in seconds.
    """

    def __init__(
        self,
        max_characters: int = MAX_TARGET_CHARACTERS,
        idle_s: float = math.inf,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_characters = max_characters
        self._idle_s = idle_s
        self._now = now
        self._items: deque[str | TextMark] = deque()
        self._characters = 0
        self._buffered = 0
        self._complete = False
        self._cancelled = False
        self._news = asyncio.Event()
        self._alive_s = now()

    def push(self, text: str) -> None:
        """Add the next piece.

        Raises:
            InvalidInput: it is malformed or too long, or the text is complete.
        """
        self._require_open(text)
        require_characters(FIELD, text, self._max_characters, before=self._characters)
        size = len(text.encode())
        if self._buffered + size > MAX_BUFFERED_BYTES:
            limit = f"at most {MAX_BUFFERED_BYTES} of them may wait to be spoken"
            raise InvalidInput(FIELD, f"{self._buffered + size} bytes", limit)
        self._characters += len(text)
        self._buffered += size
        self._put(text)

    def mark(self, mark: TextMark) -> None:
        """Say that all text so far is to be spoken to its end; an InvalidInput if it is complete already."""
        self._require_open(mark.value)
        self._complete = mark is TextMark.END
        self._put(mark)

    def cancel(self) -> None:
        """End the utterance at once, whatever text has come."""
        self._complete = self._cancelled = True
        self._news.set()

    def spoke(self) -> None:
        """Note that a part of the text has just been spoken."""
        self._alive_s = self._now()

    async def next(self) -> str | TextMark:
        """The next piece or mark.

        Raises:
            ClientGoneError: it was cancelled.
            WithdrawnError: nothing came for too long.
        """
        while not (self._items or self._cancelled):
            await self._wait()
        if self._cancelled:
            raise ClientGoneError
        item = self._items.popleft()
        if isinstance(item, str):
            self._buffered -= len(item.encode())
        return item

    async def until_cancelled(self) -> None:
        while not self._cancelled:
            self._news.clear()
            await self._news.wait()
        raise ClientGoneError

    async def _wait(self) -> None:
        left_s = self._alive_s + self._idle_s - self._now()
        if left_s <= 0:
            raise WithdrawnError(f"no text came for {self._idle_s:g} s, and no end of it")
        self._news.clear()
        with suppress(TimeoutError):  # Speech may have moved the limit meanwhile.
            # Not wait_for: in Python 3.11 it forgets that it was cancelled when text comes just then.
            async with asyncio.timeout(None if left_s == math.inf else left_s):
                await self._news.wait()

    def _put(self, item: str | TextMark) -> None:
        self._alive_s = self._now()
        self._items.append(item)
        self._news.set()

    def _require_open(self, value: str) -> None:
        if self._complete:
            raise InvalidInput(FIELD, value, "the text of this utterance is complete")
