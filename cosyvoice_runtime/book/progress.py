"""How far a book is: a bar that is drawn anew on a terminal, else one line a chapter."""

from __future__ import annotations

import shutil
import time
import unicodedata
from collections.abc import Callable, Sequence
from typing import TextIO

from cosyvoice_runtime.book.chapters import Passage

CLEAR = "\r\x1b[K"
"""Back to the line's beginning, and away with it (ECMA-48: CR, and EL)."""
BAR = 20
"""Columns of the bar."""


class BookProgress:
    """Tells how far a book is, by characters.

    Args:
        stream: where lines go; None for nowhere.
        passages: of the whole book.
        titles: of its chapters.
        now: seconds of a clock.
    """

    def __init__(
        self,
        stream: TextIO | None,
        passages: Sequence[Passage],
        titles: Sequence[str],
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._stream, self._titles, self._now = stream, titles, now
        self._anew = stream is not None and stream.isatty()
        self._all = sum(len(passage.text) for passage in passages)
        self._kept = self._spoken = 0
        self._seconds = 0.0
        self._start_s = now()
        self._chapter = -1

    @property
    def percent(self) -> int:
        return 100 * (self._kept + self._spoken) // self._all

    def keep(self, passage: Passage) -> None:
        """A passage was spoken before this process began."""
        self._kept += len(passage.text)

    def begin(self, passage: Passage) -> None:
        """A passage is to be spoken."""
        if self._chapter != passage.chapter or self._anew:
            self._chapter = passage.chapter
            self._show()

    def hear(self, seconds: float) -> None:
        """So much more sound is there."""
        self._seconds += seconds
        if self._anew:
            self._show()

    def end(self, passage: Passage) -> None:
        """The passage is kept."""
        self._spoken += len(passage.text)

    def clear(self) -> None:
        """Take the line away from a terminal."""
        if self._anew:
            print(CLEAR, end="", file=self._stream, flush=True)

    def say(self, line: str) -> None:
        """Say something else, in the place of the line on a terminal."""
        if self._stream is not None:
            print(f"{CLEAR if self._anew else ''}{line}", file=self._stream, flush=True)

    def _show(self) -> None:
        line = self._line()
        if not self._anew:
            self.say(line)
        elif self._stream is not None:
            width = shutil.get_terminal_size().columns - 1
            bar = "#" * (self.percent * BAR // 100)
            print(f"{CLEAR}{_fitting(f'[{bar:{BAR}}] {line}', width)}", end="", file=self._stream, flush=True)

    def _line(self) -> str:
        title = self._titles[self._chapter]
        chapter = f"chapter {self._chapter + 1} of {len(self._titles)}"
        took_s = self._now() - self._start_s
        figures = [f"{self.percent} %"]
        if self._seconds and took_s:
            figures.append(f"{self._seconds / took_s:.1f} times real time")
        if self._spoken:
            left = self._all - self._kept - self._spoken
            figures.append(f"{clock(took_s * left / self._spoken)} left")
        return ", ".join([*figures, f"{chapter}: {title}" if title else chapter])


def clock(seconds: float) -> str:
    """Hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _fitting(line: str, width: int) -> str:
    """As much of a line as a terminal shows in so many columns; wide characters take two."""
    shown, used = "", 0
    for character in line:
        used += 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if used > width:
            break
        shown += character
    return shown
