"""Files that say when each word of a recording is heard: words in JSON, and captions in SRT and WebVTT."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from cosyvoice_client.errors import InvalidArgumentError
from cosyvoice_runtime.alignment.words import TimedWord
from cosyvoice_runtime.text.markup.unsaid import blanked

MOST_CHARACTERS = 42
"""A caption is one line of Netflix' Timed Text Style Guide."""
PAUSE_S = 0.5
"""A silence that ends a caption."""
SENTENCE_ENDS = tuple(".!?…。！？")


class Shown(NamedTuple):
    """A word, and what stands between it and the word before, which is empty where a text begins."""

    word: TimedWord
    before: str


class Captions:
    """Collects the words of a recording, text by text.

    Args:
        files: what writes the words, by the file's path.
        method: how words are timed, ``attention`` or ``estimate``.
        markup: of the texts, whose tags are no words.

    Raises:
        InvalidArgumentError: a file's folder is missing.
    """

    def __init__(self, files: dict[Path, CaptionWriter], method: str, markup: str | None) -> None:
        self._files, self._method, self._markup = files, method, markup
        self._shown: list[Shown] = []
        self._end_s = 0.0
        for path in files:
            check_captions(path)

    def add(self, text: str, words: Iterable[TimedWord], seconds: float) -> None:
        """Take the words of a text that lasts so many seconds and follows the one before."""
        self._shown += shown_of(text, words, self._end_s, self._markup)
        self._end_s += seconds

    def write(self) -> None:
        """Write all files; an InvalidArgumentError names one that can't be."""
        for path, written in self._files.items():
            write_captions(path, written(self._shown, self._method))


def shown_of(text: str, words: Iterable[TimedWord], start_s: float, markup: str | None) -> Iterator[Shown]:
    """The words of a text that begins at this second, and what stands before each in it."""
    text, place = blanked(text, markup), 0
    for word in words:
        start = text.index(word.text, place)
        before = " ".join(text[place:start].split()) or (" " if start > place > 0 else "")
        place = start + len(word.text)
        yield Shown(TimedWord(word.text, word.start_s + start_s, word.end_s + start_s), before)


def check_captions(path: Path) -> None:
    """Raise an InvalidArgumentError where the file's folder is missing."""
    if not path.parent.is_dir() or path.is_dir():
        raise InvalidArgumentError(f"{path}: expected a file in a folder that exists")


def write_captions(path: Path, content: Iterable[str]) -> None:
    """Write a file piece by piece; an InvalidArgumentError tells that it can't be."""
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(content)
    except OSError as error:
        raise InvalidArgumentError(f"{path}: {error.strerror or error}") from error


CaptionWriter = Callable[[Iterable[Shown], str], Iterator[str]]
"""Writes words, and how they are timed, as the content of a file, piece by piece."""


def as_json(shown: Iterable[Shown], method: str) -> Iterator[str]:
    """Words with seconds, as OpenAI's ``verbose_json`` has them, and the method."""
    words = [
        {"word": word.text, "start": round(word.start_s, 3), "end": round(word.end_s, 3)} for word, _ in shown
    ]
    yield json.dumps({"method": method, "words": words}, ensure_ascii=False, indent=1) + "\n"


def as_srt(shown: Iterable[Shown], method: str) -> Iterator[str]:  # noqa: ARG001
    """SubRip's captions."""
    for number, cue in enumerate(cues_of(shown), 1):
        times = f"{_clock(cue[0].word.start_s, ',')} --> {_clock(cue[-1].word.end_s, ',')}"
        before = "" if number == 1 else "\n"
        yield f"{before}{number}\n{times}\n{_text(cue)}\n"


def as_vtt(shown: Iterable[Shown], method: str) -> Iterator[str]:
    """WebVTT's captions, with the time of each word in them (https://www.w3.org/TR/webvtt1)."""
    yield f"WEBVTT\n\nNOTE\nWord times by {method}.\n"
    for cue in cues_of(shown):
        times = f"{_clock(cue[0].word.start_s, '.')} --> {_clock(cue[-1].word.end_s, '.')}"
        yield f"\n{times}\n{_timed_text(cue)}\n"


WRITERS: dict[str, CaptionWriter] = {"words": as_json, "srt": as_srt, "vtt": as_vtt}
"""By the option that names the file."""


def cues_of(shown: Iterable[Shown]) -> Iterator[list[Shown]]:
    """Captions of a line at most, which end with sentences and before pauses."""
    cue: list[Shown] = []
    for each in shown:
        if cue and _ends(cue, each):
            yield cue
            cue = []
        cue.append(each)
    if cue:
        yield cue


def _ends(cue: Sequence[Shown], following: Shown) -> bool:
    last = cue[-1].word
    length = len(_text([*cue, following]))
    pause_s = following.word.start_s - last.end_s
    return length > MOST_CHARACTERS or last.text.endswith(SENTENCE_ENDS) or pause_s > PAUSE_S


def _text(cue: Sequence[Shown]) -> str:
    first, *others = cue
    return first.word.text + "".join(each.before + each.word.text for each in others)


def _timed_text(cue: Sequence[Shown]) -> str:
    first, *others = cue
    timed = [f"{each.before}<{_clock(each.word.start_s, '.')}>{_escaped(each.word.text)}" for each in others]
    return "".join([_escaped(first.word.text), *timed])


def _escaped(text: str) -> str:
    return html.escape(text, quote=False)


def _clock(seconds: float, point: str) -> str:
    """Hours, minutes, seconds and milliseconds."""
    milliseconds = round(1000 * seconds)
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}{point}{rest % 1000:03}"
