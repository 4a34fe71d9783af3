"""Segments of an utterance's text on their way to the speech LM, as a whole or in pieces."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from cosyvoice_runtime.lm.prompt import Prompt

MOST_TEXT = 256
"""Text ids of a segment that comes in pieces: more than the longest segment and the longest clause."""


class Sound(NamedTuple):
    """The voice and the pace of a segment.

    Attributes:
        voice_key: key of the voice's tensors, in the form that the flow takes.
        prompt_tokens: speech tokens of the flow's prompt.
        speed: 0.5 to 2; 1 is the voice's own.
    """

    voice_key: str
    prompt_tokens: int
    speed: float = 1.0


class SentWord(NamedTuple):
    """A word as it was sent, its characters in the request's text, and those in the segment's text."""

    text: str
    sent_start: int
    sent_end: int
    start: int
    end: int


class CheckedText(NamedTuple):
    """The text that a segment should say, where that is checked.

    Attributes:
        text: of the segment.
        speed: at which it is spoken.
        spans: first character and end of each text token.
        words: of the request's text, in order.
        begins: characters of the request's text before the segment.
        turn: number of the turn whose segment it is, from 0 on; None of a text. Characters are counted in the
            texts of all turns, one behind another.
    """

    text: str
    speed: float
    spans: Sequence[tuple[int, int]]
    words: Sequence[SentWord]
    begins: int
    turn: int | None = None


class SegmentSink(Protocol):
    """Takes the segments of an utterance in their order. Nothing here waits."""

    def begin(
        self,
        prompt: Prompt,
        in_pieces: bool = False,
        sound: Sound | None = None,
        checked: CheckedText | None = None,
    ) -> None:
        """Begin the next segment.

        With ``in_pieces`` its text follows by :meth:`add` and :meth:`end`, and the prompt's own text is
        empty.

        Args:
            sound: of this segment; None for the utterance's own.
            checked: what it should say; None where that is not checked.
        """

    def pause(self, seconds: float) -> None:
        """Be silent for so long before the next segment, or at the end."""

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
    """A segment of an utterance's text: a whole prompt, or one with an empty text that comes in ``pieces``.

    Its ``sound`` is the utterance's own where it is None, and what it says is not checked where ``checked``
    is.
    """

    prompt: Prompt
    pieces: TextPieces | None = None
    sound: Sound | None = None
    checked: CheckedText | None = None


class Silence(NamedTuple):
    """A silence between two segments, before the first or after the last."""

    seconds: float


class SegmentQueue:
    """A :class:`SegmentSink` from which the driver takes the segments. Used in one event loop."""

    def __init__(self) -> None:
        self._segments: deque[TextSegment | Silence | None] = deque()
        self._news = asyncio.Event()
        self._open: TextPieces | None = None

    def begin(
        self,
        prompt: Prompt,
        in_pieces: bool = False,
        sound: Sound | None = None,
        checked: CheckedText | None = None,
    ) -> None:
        self._open = TextPieces() if in_pieces else None
        self._put(TextSegment(prompt, self._open, sound, checked))

    def pause(self, seconds: float) -> None:
        self._put(Silence(seconds))

    def add(self, ids: Sequence[int]) -> None:
        assert self._open is not None, "text without a segment that takes it"
        self._open.put(ids)

    def end(self) -> None:
        if self._open is not None:
            self._open.end()

    def done(self) -> None:
        self._put(None)

    async def next(self) -> TextSegment | Silence | None:
        """The next segment, as soon as it has begun, or a silence; None after the last."""
        while not self._segments:
            self._news.clear()
            await self._news.wait()
        return self._segments.popleft()

    @property
    def following(self) -> TextSegment | None:
        """The segment that is spoken after the one that was taken last; None where it has not come."""
        return next((each for each in self._segments if isinstance(each, TextSegment)), None)

    def _put(self, item: TextSegment | Silence | None) -> None:
        self._segments.append(item)
        self._news.set()
