"""The words that are said of a marked-up text, with the marks and spaces between phrases, and silences."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from cosyvoice_runtime.text.markup.line_ends import Break, between
from cosyvoice_runtime.text.markup.said import Boundary, Manner, Pause, Said, joined

_TAIL = 12
_HEARD = 200
"""Characters of what was said by which its language is told."""


class _Piece(NamedTuple):
    """Ends of a part in what is said and in what was written, and whether they are the same characters."""

    said: int
    written: int
    same: bool


class Output:
    """Joins what is said, and knows of which characters it was made.

    Spaces and breaks are held until something is said after them.
    """

    def __init__(self) -> None:
        self._said: list[Said] = []
        self._characters = 0
        self._pieces: list[_Piece] = []
        self.heard = ""
        """The last words that were said."""
        self.begin()

    def begin(self) -> None:
        """Forget what was before: what comes is the start of a text."""
        self._tail = ""
        self._spaces, self._break = "", Break.NONE
        self._length = 0

    def hold(self, spaces: str, kind: Break = Break.NONE) -> None:
        """Keep spaces, and the strongest break, until something is said after them."""
        self._spaces += spaces
        self._break = max(self._break, kind)

    @property
    def holds_line_end(self) -> bool:
        """Whether the end of a line is among the spaces that are held."""
        return "\n" in self._spaces or "\r" in self._spaces

    def say(self, words: str, written: int, same: bool = False) -> None:
        """Say words after what is held.

        Args:
            written: characters of the text up to the end of what the words stand for.
            same: they are the same characters.
        """
        if self._break is Break.BLANK and self._tail:
            self.mark(Boundary.PARAGRAPH)
        held = ""
        if self._spaces or self._break is not Break.NONE:
            held = between(self._tail, words[:1], self._break, self._spaces, self._length)
            if self._break >= Break.LINE:
                self._length = -len(held)
            self._put(held, written - (len(words) if same else 0), held == self._spaces)
            self._spaces, self._break = "", Break.NONE
        self._put(words, written, same)
        said = held + words
        self._length += len(said)
        self._tail = (self._tail + said)[-_TAIL:]
        self.heard = (self.heard + said)[-_HEARD:]

    def mark(self, mark: Pause | Manner | Boundary) -> None:
        """End what is said so far: a silence, another manner or a paragraph comes. A silence of 0 s changes
        nothing."""
        if mark == Pause(0.0):
            return
        self._said.append(mark)
        self.begin()

    def end(self, written: int) -> None:
        """End the text: its last spaces are said, and what is silent after its last words counts."""
        if self._spaces:
            self._put(self._spaces, written, same=self._break is Break.NONE)
        self._pieces.append(_Piece(self._characters, written, True))
        self.begin()

    def taken(self) -> list[Said]:
        """All that has been said since the last call, words that follow each other as one string."""
        taken = joined(self._said)
        self._said.clear()
        return taken

    def characters(self, said: int) -> int:
        """Characters of what was written that are said with the first ``said`` characters."""
        place = bisect_right(self._pieces, said, key=lambda piece: piece.said)
        before = self._pieces[place - 1] if place else _Piece(0, 0, True)
        if before.said == said or place == len(self._pieces):
            return before.written
        after = self._pieces[place]
        return max(before.written, after.written - (after.said - said) if after.same else after.written)

    def _put(self, said: str, written: int, same: bool) -> None:
        self._characters += len(said)
        self._said.append(said)
        self._pieces.append(_Piece(self._characters, written, same))
