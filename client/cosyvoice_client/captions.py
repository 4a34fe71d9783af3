"""Files that say when each word of a recording is heard: words in JSON, and captions in SRT and WebVTT."""

from __future__ import annotations

import argparse
import html
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, get_args

from cosyvoice_client.chinese_words import ChineseWords, WordUnit
from cosyvoice_client.chunk import AudioChunk
from cosyvoice_client.delivery import DEFAULT_OUTPUT, closed
from cosyvoice_client.errors import InvalidArgumentError, RefusedError
from cosyvoice_client.words import TimedWord

MOST_CHARACTERS = 42
"""A caption is one line of Netflix' Timed Text Style Guide."""
PAUSE_S = 0.5
"""A silence that ends a caption."""
SENTENCE_ENDS = tuple(".!?…。！？")


PARAGRAPH = "\n\n"


class Shown(NamedTuple):
    """A word, and what stands between it and the word before: :data:`PARAGRAPH` where a text or a paragraph,
    such as a turn of another speaker, begins."""

    word: TimedWord
    before: str


class Captions:
    """Collects the words of a recording, text by text.

    Args:
        files: what writes the words, by the file's path.
        blanked: puts spaces in the place of a text's tags, which are no words.
        unit: what is timed of a Chinese text.

    Raises:
        InvalidArgumentError: a file's folder is missing, or what Chinese words need.
    """

    def __init__(
        self,
        files: dict[Path, CaptionWriter],
        blanked: Callable[[str], str],
        unit: WordUnit = "character",
    ) -> None:
        self._files, self._blanked, self._unit = files, blanked, unit
        if unit == "word":
            ChineseWords("")  # raises now what it would behind the speech
        self._methods: set[str] = set()
        self._shown: list[Shown] = []
        self._end_s = 0.0
        for path in files:
            check_captions(path)

    @property
    def method(self) -> str:
        """How words are timed: ``attention`` or ``estimate``, or both."""
        return ", ".join(sorted(self._methods))

    def watch(self, text: str, chunks: Iterable[AudioChunk]) -> Iterator[AudioChunk]:
        """Pass on the chunks of a text, which follows the one before, or of its end.

        Raises:
            RefusedError: no chunk tells words.
        """
        words: list[TimedWord] = []
        methods, seconds, begins = set(), 0.0, 0
        try:
            with closed(chunks):
                for chunk in chunks:
                    words += chunk.words
                    methods.add(chunk.words_by)
                    seconds += chunk.seconds
                    begins = chunk.start_character or begins
                    yield chunk
        finally:
            self._methods |= methods - {""}
            sent, blanked = text[begins:], self._blanked(text)[begins:]
            self._shown += shown_of(sent, blanked, words, self._end_s, self._unit)
            self._end_s += seconds
        if methods == {""}:
            raise RefusedError("words were asked for, and the server told none")

    @contextmanager
    def written(self) -> Iterator[None]:
        """Write all files at the end, and behind an error or Ctrl-C what came before, if anything did.

        Raises:
            InvalidArgumentError: one can't be written.
        """
        try:
            yield
        except BaseException:
            if self._shown:
                self._write()
            raise
        self._write()

    def _write(self) -> None:
        for path, written in self._files.items():
            write_captions(path, written(self._shown, self.method))


_PARAGRAPH = re.compile(r"\n\s*\n")


def shown_of(
    sent: str, text: str, words: Iterable[TimedWord], start_s: float, unit: WordUnit
) -> Iterator[Shown]:
    """The words of a text that begins at this second, and what stands before each in it.

    Args:
        sent: the text.
        text: the same with spaces in the place of its tags.
    """
    if unit == "word":
        joined = ChineseWords(text)
        words = [*joined.push(words), *joined.finish()]
    place = 0
    for number, word in enumerate(words):
        start = text.find(word.text, place)
        between = " " if start < 0 else text[place:start]
        before = " ".join(between.split()) or (" " if between else "")
        if not number or _PARAGRAPH.search(between):
            before = PARAGRAPH
        elif start >= 0 and _is_behind_a_tag(word.text, sent[place:start]):
            before = ""
        place = place if start < 0 else start + len(word.text)
        yield Shown(TimedWord(word.text, word.start_s + start_s, word.end_s + start_s), before)


def _is_behind_a_tag(mark: str, between: str) -> bool:
    """Whether nothing but tags stands between a mark and the word before, as in ``<b>now</b>.``."""
    is_mark = not any(map(str.isalnum, mark))
    return is_mark and bool(between) and not (between[0].isspace() or between[-1].isspace())


def check_captions(path: Path) -> None:
    """Raise an InvalidArgumentError where the file's folder is missing, or it can't be written."""
    if not path.parent.is_dir() or path.is_dir():
        raise InvalidArgumentError(f"{path}: expected a file in a folder that exists")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InvalidArgumentError(f"{path}: it can't be written")


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
        times = _times(cue, ",")
        before = "" if number == 1 else "\n"
        yield f"{before}{number}\n{times}\n{_text(cue)}\n"


def as_vtt(shown: Iterable[Shown], method: str) -> Iterator[str]:
    """WebVTT's captions, with the time of each word in them (https://www.w3.org/TR/webvtt1)."""
    yield f"WEBVTT\n\nNOTE\nWord times by {method}.\n"
    for cue in cues_of(shown):
        times = _times(cue, ".")
        yield f"\n{times}\n{_timed_text(cue)}\n"


FILES: dict[str, tuple[str, CaptionWriter]] = {
    "words": ("write when each word is heard, as JSON", as_json),
    "srt": ("write captions for SubRip", as_srt),
    "vtt": ("write captions for WebVTT, word by word", as_vtt),
}
"""Purpose and writer of the file that each option names."""


def add_caption_files(parser: argparse.ArgumentParser) -> None:
    """Options that name files of words, and what of Chinese they tell."""
    for name, (purpose, _) in FILES.items():
        parser.add_argument(f"--{name}", dest=f"{name}_file", type=Path, metavar="FILE", help=purpose)
    parser.add_argument(
        "--word-unit",
        choices=get_args(WordUnit),
        default="character",
        help="what these files tell of Chinese text, whose words package rjieba knows (default %(default)s)",
    )


def asked_files(options: argparse.Namespace) -> dict[Path, CaptionWriter]:
    """The files that the options name, and what writes each.

    Raises:
        InvalidArgumentError: one is the output, or is named twice.
    """
    asked: dict[Path, CaptionWriter] = {}
    for name, (_, writer) in FILES.items():
        path = getattr(options, f"{name}_file")
        if path in asked or (path and path == Path(options.output or DEFAULT_OUTPUT)):
            raise InvalidArgumentError(
                f"--{name}: {path} is another output, too; each needs a file of its own"
            )
        if path is not None:
            asked[path] = writer
    return asked


def asked_captions(options: argparse.Namespace, blanked: Callable[[str], str]) -> Captions | None:
    """The captions in the files that the options name; None for no file.

    Raises:
        InvalidArgumentError: a file can't be used, or what Chinese words need is missing.
    """
    files = asked_files(options)
    return Captions(files, blanked, options.word_unit) if files else None


_TAG = re.compile(
    r"""</?[A-Za-z][\w:.-]*(?:\s+[\w:.-]+\s*=\s*(?:"[^"]*"|'[^']*'))*\s*/?>|<[?!][^<>]*>|\[pause:[^\[\]\n]*\]"""
)


def without_tags(text: str) -> str:
    """The text with spaces in the place of what looks like a tag, of whatever markup."""
    return _TAG.sub(lambda tag: " " * len(tag[0]), text)


def cues_of(shown: Iterable[Shown]) -> Iterator[list[Shown]]:
    """Captions of a line at most, which end with sentences and paragraphs, and before pauses.

    A word that takes no time, such as a mark or what stands in a block of code, is shown within one alone,
    and none has nothing but marks.
    """
    return (cue for cue in _cues(shown) if any(map(str.isalnum, _text(cue))))


def _cues(shown: Iterable[Shown]) -> Iterator[list[Shown]]:
    cue: list[Shown] = []
    begins = False  # a paragraph, whose first word is not shown
    for each in shown:
        if begins:
            each = each._replace(before=PARAGRAPH)
        ends = bool(cue) and _ends(cue, each)
        takes_time = _milliseconds(each.word.start_s) < _milliseconds(each.word.end_s)
        if takes_time and ends:
            yield cue
            cue = []
        if takes_time or (cue and not (ends and each.before)):
            cue.append(each)
            begins = False
        else:
            begins = each.before == PARAGRAPH
    if cue:
        yield cue


def _ends(cue: Sequence[Shown], following: Shown) -> bool:
    if following.before == PARAGRAPH:
        return True
    last = cue[-1].word
    length = len(_text([*cue, following]))
    pause_s = following.word.start_s - last.end_s
    return length > MOST_CHARACTERS or last.text.endswith(SENTENCE_ENDS) or pause_s > PAUSE_S


def _text(cue: Sequence[Shown]) -> str:
    first, *others = cue
    return first.word.text + "".join(each.before + each.word.text for each in others)


def _timed_text(cue: Sequence[Shown]) -> str:
    """The words with their times, of which WebVTT wants each to be later than the one before, and within."""
    first, *others = cue
    timed, last, end = (
        _escaped(first.word.text),
        *map(_milliseconds, (first.word.start_s, cue[-1].word.end_s)),
    )
    for each in others:
        at = _milliseconds(each.word.start_s)
        time = f"<{clock(at, '.')}>" if last < at < end else ""
        timed += f"{each.before}{time}{_escaped(each.word.text)}"
        last = max(last, at)
    return timed


def _times(cue: Sequence[Shown], point: str) -> str:
    """Beginning and end of a caption."""
    return " --> ".join(clock(_milliseconds(at), point) for at in (cue[0].word.start_s, cue[-1].word.end_s))


def _escaped(text: str) -> str:
    return html.escape(text, quote=False)


def clock(milliseconds: int, point: str) -> str:
    """The time as hours, minutes, seconds and, behind the point, milliseconds."""
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}{point}{rest % 1000:03}"


def _milliseconds(seconds: float) -> int:
    return round(1000 * seconds)
