"""Files that say when each word of a recording is heard: words in JSON, and captions in SRT and WebVTT."""

from __future__ import annotations

import argparse
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from cosyvoice_client.chunk import AudioChunk
from cosyvoice_client.delivery import closed
from cosyvoice_client.errors import InvalidArgumentError, RefusedError
from cosyvoice_client.words import TimedWord

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
        blanked: puts spaces in the place of a text's tags, which are no words.

    Raises:
        InvalidArgumentError: a file's folder is missing.
    """

    def __init__(self, files: dict[Path, CaptionWriter], blanked: Callable[[str], str]) -> None:
        self._files, self._blanked = files, blanked
        self._methods: set[str] = set()
        self._shown: list[Shown] = []
        self._end_s = 0.0
        for path in files:
            if not path.parent.is_dir() or path.is_dir():
                raise InvalidArgumentError(f"{path}: expected a file in a folder that exists")

    @property
    def method(self) -> str:
        """How words are timed: ``attention`` or ``estimate``, or both."""
        return ", ".join(sorted(self._methods))

    def watch(self, text: str, chunks: Iterable[AudioChunk]) -> Iterator[AudioChunk]:
        """The same chunks of a text, which follows the one before; their words are taken when all have come.

        Raises:
            RefusedError: no chunk tells words.
        """
        words: list[TimedWord] = []
        methods, seconds = set(), 0.0
        with closed(chunks):
            for chunk in chunks:
                words += chunk.words
                methods.add(chunk.words_by)
                seconds += chunk.seconds
                yield chunk
        if methods == {""}:
            raise RefusedError("words were asked for, and the server told none")
        self._methods |= methods - {""}
        self._add(self._blanked(text), words, seconds)

    def _add(self, text: str, words: Iterable[TimedWord], seconds: float) -> None:
        place = 0
        for word in words:
            start = text.find(word.text, place)
            between = " " if start < 0 else text[place:start]
            before = " ".join(between.split()) or (" " if between and place else "")
            place = place if start < 0 else start + len(word.text)
            times = word.start_s + self._end_s, word.end_s + self._end_s
            self._shown.append(Shown(TimedWord(word.text, *times), before))
        self._end_s += seconds

    def write(self) -> None:
        """Write all files; an InvalidArgumentError names one that can't be."""
        for path, written in self._files.items():
            try:
                path.write_text(written(self._shown, self.method), encoding="utf-8")
            except OSError as error:
                raise InvalidArgumentError(f"{path}: {error.strerror or error}") from error


CaptionWriter = Callable[[Sequence[Shown], str], str]
"""Writes words, and how they are timed, as the content of a file."""


def as_json(shown: Sequence[Shown], method: str) -> str:
    """Words with seconds, as OpenAI's ``verbose_json`` has them, and the method."""
    words = [
        {"word": word.text, "start": round(word.start_s, 3), "end": round(word.end_s, 3)} for word, _ in shown
    ]
    return json.dumps({"method": method, "words": words}, ensure_ascii=False, indent=1) + "\n"


def as_srt(shown: Sequence[Shown], method: str) -> str:  # noqa: ARG001
    """SubRip's captions."""
    cues = [
        f"{number}\n{_clock(cue[0].word.start_s, ',')} --> {_clock(cue[-1].word.end_s, ',')}\n{_text(cue)}\n"
        for number, cue in enumerate(cues_of(shown), 1)
    ]
    return "\n".join(cues)


def as_vtt(shown: Sequence[Shown], method: str) -> str:
    """WebVTT's captions, with the time of each word in them (https://www.w3.org/TR/webvtt1)."""
    note = f"WEBVTT\n\nNOTE\nWord times by {method}.\n"
    cues = [
        f"{_clock(cue[0].word.start_s, '.')} --> {_clock(cue[-1].word.end_s, '.')}\n{_timed_text(cue)}\n"
        for cue in cues_of(shown)
    ]
    return "\n".join([note, *cues])


FILES: dict[str, tuple[str, CaptionWriter]] = {
    "words": ("write when each word is heard, as JSON", as_json),
    "srt": ("write captions for SubRip", as_srt),
    "vtt": ("write captions for WebVTT, word by word", as_vtt),
}
"""Purpose and writer of the file that each option names."""


def add_caption_files(parser: argparse.ArgumentParser) -> None:
    """Options that name files of words."""
    for name, (purpose, _) in FILES.items():
        parser.add_argument(f"--{name}", dest=f"{name}_file", type=Path, metavar="FILE", help=purpose)


def asked_captions(options: argparse.Namespace, blanked: Callable[[str], str]) -> Captions | None:
    """The captions in the files that the options name; None for no file.

    Raises:
        InvalidArgumentError: a file's folder is missing.
    """
    asked = {getattr(options, f"{name}_file"): writer for name, (_, writer) in FILES.items()}
    files = {path: writer for path, writer in asked.items() if path is not None}
    return Captions(files, blanked) if files else None


_TAG = re.compile(
    r"""</?[A-Za-z][\w:.-]*(?:\s+[\w:.-]+\s*=\s*(?:"[^"]*"|'[^']*'))*\s*/?>|<[?!][^<>]*>|\[pause:[^\[\]\n]*\]"""
)


def without_tags(text: str) -> str:
    """The text with spaces in the place of what looks like a tag, of whatever markup."""
    return _TAG.sub(lambda tag: " " * len(tag[0]), text)


def cues_of(shown: Sequence[Shown]) -> Iterator[list[Shown]]:
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
