"""The progress that is told while a book is spoken."""

from __future__ import annotations

import io
import os

import pytest

from cosyvoice_runtime.book.chapters import Gap, Passage
from cosyvoice_runtime.book.progress import CLEAR, BookProgress, clock

PASSAGES = [
    Passage("a" * 10, 0, Gap.CHAPTER),
    Passage("b" * 30, 1, Gap.CHAPTER),
    Passage("c" * 60, 1, Gap.NONE),
]
TITLES = ["The 海", ""]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def spoken(stream: io.StringIO | None) -> BookProgress:
    """A book of which the first passage was kept, and the others take ten seconds each, for 50 of sound."""
    time_s = [0.0]
    progress = BookProgress(stream, PASSAGES, TITLES, lambda: time_s[0])
    progress.keep(PASSAGES[0])
    for passage in PASSAGES[1:]:
        progress.begin(passage)
        time_s[0] += 10.0
        progress.hear(50.0)
        progress.end(passage)
    progress.clear()
    return progress


def test_without_a_terminal_there_is_a_line_for_each_chapter() -> None:
    stream = io.StringIO()
    progress = BookProgress(stream, PASSAGES, TITLES, lambda: 0.0)
    for passage in PASSAGES:
        progress.begin(passage)
        progress.end(passage)
    progress.say("done")
    assert stream.getvalue().splitlines() == [
        "0 %, chapter 1 of 2: The 海", "10 %, 0:00:00 left, chapter 2 of 2", "done",
    ]  # fmt: skip


def test_on_a_terminal_one_line_is_written_anew() -> None:
    stream = Terminal()
    assert spoken(stream).percent == 100
    first, *lines, last = stream.getvalue().split(CLEAR)
    assert (first, last) == ("", "")
    assert lines == [
        "[##                  ] 10 %, chapter 2 of 2",
        "[##                  ] 10 %, 5.0 times real time, chapter 2 of 2",
        "[########            ] 40 %, 5.0 times real time, 0:00:20 left, chapter 2 of 2",
        "[########            ] 40 %, 5.0 times real time, 0:00:40 left, chapter 2 of 2",
    ]


@pytest.mark.parametrize(
    ("columns", "line"), [(51, "0 %, chapter 1 of 2: The 海"), (50, "0 %, chapter 1 of 2: The ")]
)
def test_line_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int, line: str) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((columns, 24)))
    stream = Terminal()
    BookProgress(stream, PASSAGES, TITLES, lambda: 0.0).begin(PASSAGES[0])
    assert stream.getvalue() == f"{CLEAR}[{' ' * 20}] {line}"


def test_nothing_is_told_without_a_stream() -> None:
    assert spoken(None).percent == 100


def test_clock_has_hours() -> None:
    assert clock(36_000 + 59.6) == "10:01:00"
