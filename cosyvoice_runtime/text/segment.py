"""A segment of a text, which the speech LM speaks at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock

from cosyvoice_runtime.text.markup.said import USUAL, Manner


@dataclass(frozen=True)
class Segment:
    """A segment of a text, which the speech LM speaks at once.

    Attributes:
        text: normalised; empty where a text ends with a silence.
        pause_s: silence before it.
        manner: how it is spoken.
        begins_paragraph: whether a paragraph begins with it, and it is not the first of the text.
        characters: of the text up to its end; 0 where a text ends with a silence.
    """

    text: str
    pause_s: float = 0.0
    manner: Manner = USUAL
    begins_paragraph: bool = False
    characters: int = field(default=0, compare=False)


class ReadSegments:
    """The segments of a text, each read when it is first asked for and then kept, as an error is.

    Safe for threads.

    Attributes:
        manners: those that are known before the segments are read: of SSML all.
    """

    def __init__(self, segments: Iterator[Segment], manners: Sequence[Manner] = ()) -> None:
        self.manners = manners
        self._rest = segments
        self._read: list[Segment] = []
        self._error: Exception | None = None
        self._lock = Lock()

    def __iter__(self) -> Iterator[Segment]:
        place = 0
        while (segment := self._at(place)) is not None:
            yield segment
            place += 1

    def _at(self, place: int) -> Segment | None:
        with self._lock:
            if place == len(self._read):
                self._read_on()
            return self._read[place] if place < len(self._read) else None

    def _read_on(self) -> None:
        if self._error is not None:
            raise self._error
        try:
            segment = next(self._rest, None)
        except Exception as error:
            self._error = error
            raise
        if segment is not None:
            self._read.append(segment)
