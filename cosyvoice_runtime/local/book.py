"""``cosyvoice book``: read a book aloud, into one file with chapters, and go on where it was interrupted."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from cosyvoice_client.captions import (
    Shown,
    add_caption_files,
    asked_files,
    check_captions,
    shown_of,
    write_captions,
)
from cosyvoice_client.delivery import tell
from cosyvoice_runtime.book.binding import SUFFIXES, Imprint, bind, check_output
from cosyvoice_runtime.book.chapters import Book, Passage, keys_of, passages_of
from cosyvoice_runtime.book.opening import READERS, read_book
from cosyvoice_runtime.book.parts import BookParts, Part, Pcm, open_parts
from cosyvoice_runtime.book.progress import BookProgress, clock
from cosyvoice_runtime.book.reader import speak_book
from cosyvoice_runtime.book.timeline import (
    CHAPTER_PAUSE_S,
    LONGEST_PAUSE_S,
    PARAGRAPH_PAUSE_S,
    BookTimeline,
    Pauses,
    timeline_of,
)
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.local.book_sources import BookSource, LibrarySource, ServerSource
from cosyvoice_runtime.local.speech_options import (
    add_checkpoint,
    add_common,
    add_manner,
    add_voice,
    check_voice,
)
from cosyvoice_runtime.speakable import is_speakable
from cosyvoice_runtime.text import TextFrontEnd
from cosyvoice_runtime.text.markup.unsaid import blanked

PARTS = ".parts"
"""Suffix of the folder beside the output in which the spoken passages are kept."""


def add_book(command: argparse.ArgumentParser) -> None:
    """Add the options of ``cosyvoice book``."""
    add_common(command)
    speaker = command.add_mutually_exclusive_group(required=True)
    add_checkpoint(command, speaker)
    speaker.add_argument("--server", metavar="HOST:PORT", help="gRPC port of a server, which speaks instead")
    add_voice(command)
    command.add_argument("book", type=Path, help=f"{', '.join(READERS)}; UTF-8")
    about = f"{', '.join(SUFFIXES)}; the folder FILE{PARTS} keeps what is spoken until FILE is whole"
    command.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help=about)
    add_caption_files(command)
    add_manner(command)
    command.add_argument("--title", help="of the book (default: the file's)")
    command.add_argument("--author", help="of the book (default: the file's)")
    pause = f"silence between paragraphs, 0 to {LONGEST_PAUSE_S:g} s (default %(default)s)"
    command.add_argument("--paragraph-pause", type=float, default=PARAGRAPH_PAUSE_S, metavar="S", help=pause)
    pause = f"silence before a chapter, 0 to {LONGEST_PAUSE_S:g} s (default %(default)s)"
    command.add_argument("--chapter-pause", type=float, default=CHAPTER_PAUSE_S, metavar="S", help=pause)
    command.add_argument("--restart", action="store_true", help="forget what is spoken by now")
    command.add_argument("--keep-parts", action="store_true", help=f"leave the folder FILE{PARTS}")
    command.add_argument("--quiet", action="store_true", help="no progress")
    command.set_defaults(run=partial(book, command))


def book(command: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Speak what is missing of a book, and put it together.

    Raises:
        CosyVoiceError, ClientError, OSError: an option, the book or the output can't be used; or it can't be
            spoken on, which leaves what is spoken by then.
    """
    check_output(options.output)
    check_voice(options)
    files = asked_files(options)
    for path in files:
        check_captions(path)
    pauses = _pauses(options)
    asked = _named(read_book(options.book), options)
    source = _source(command, options)
    passages = passages_of(asked, _speakable(source.front_end, options))
    if not passages:
        raise InvalidInput("book", str(options.book), "nothing of it can be spoken")
    if files and source.estimate and not options.quiet:
        tell(f"word times are an estimate: {source.estimate}")
    titles = [chapter.title or asked.title for chapter in asked.chapters]
    progress = BookProgress(None if options.quiet else sys.stderr, passages, titles)
    folder = options.output.with_name(options.output.name + PARTS)
    with open_parts(folder, source.settings, options.seed, restart=options.restart) as parts:
        spoken = _spoken(passages, parts, source, progress)
        lengths, rate = [part.samples for part in spoken], spoken[0].sample_rate
        progress.say(f"all is spoken; {options.output} is put together")
        timeline = timeline_of(passages, lengths, titles, rate, pauses)
        method = ", ".join(sorted({part.words_by for part in spoken}))
        for path, written in files.items():
            shown = _shown(passages, parts, timeline, rate, options)
            write_captions(path, written(shown, method))
        with parts.output(options.output) as whole:
            imprint = Imprint(asked.title, asked.author, timeline.chapters, rate)
            bind(whole, _stretches(passages, parts, timeline), imprint)
        if not options.keep_parts:
            parts.remove()
    length = clock(timeline.chapters[-1].end / rate)
    progress.say(f"{options.output}: {length} in {len(timeline.chapters)} chapters")


def _spoken(
    passages: Sequence[Passage], parts: BookParts, source: BookSource, progress: BookProgress
) -> list[Part]:
    """Speak what is missing; returns what is known of each passage."""
    try:
        return speak_book(passages, parts, source, progress)
    except KeyboardInterrupt:
        progress.say(f"stopped at {progress.percent} %; the same command goes on")
        raise
    finally:
        progress.clear()


def _source(command: argparse.ArgumentParser, options: argparse.Namespace) -> BookSource:
    return LibrarySource(options) if options.server is None else ServerSource(options, command)


def _pauses(options: argparse.Namespace) -> Pauses:
    for name in ("paragraph_pause", "chapter_pause"):
        if not 0 <= getattr(options, name) <= LONGEST_PAUSE_S:
            raise InvalidInput(name, getattr(options, name), f"0 to {LONGEST_PAUSE_S:g} seconds")
    return Pauses(options.paragraph_pause, options.chapter_pause)


def _named(read: Book, options: argparse.Namespace) -> Book:
    """The book with the title and the author that the options give."""
    return replace(read, title=options.title or read.title, author=options.author or read.author)


def _speakable(front_end: TextFrontEnd, options: argparse.Namespace) -> Callable[[str], bool]:
    """Make what tells whether a text can be spoken; one of nothing but marks is told, not ornaments."""

    def speakable(text: str) -> bool:
        if not is_speakable(text):
            return False
        try:
            front_end.spoken(text, options.language)
        except InvalidInput as error:
            if error.field != "target_text":
                raise
            if not options.quiet:
                tell(f"left out: {error}")
            return False
        return True

    return speakable


def _stretches(passages: Sequence[Passage], parts: BookParts, timeline: BookTimeline) -> Iterator[Pcm]:
    """All samples of a book in order, a passage at a time."""
    for key, silence in zip(keys_of(passages), timeline.silences, strict=True):
        yield np.zeros(silence, np.int16)
        yield parts.sound(key)


def _shown(
    passages: Sequence[Passage],
    parts: BookParts,
    timeline: BookTimeline,
    rate: int,
    options: argparse.Namespace,
) -> Iterator[Shown]:
    """All words of a book, as captions show them."""
    for passage, key, start in zip(passages, keys_of(passages), timeline.starts, strict=True):
        text = blanked(passage.text, options.markup)
        yield from shown_of(passage.text, text, parts.words(key), start / rate, options.word_unit)
