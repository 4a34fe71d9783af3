"""``cosyvoice read``: show a text as it would be spoken, segment by segment, without speaking it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from cosyvoice_runtime.checkpoint import Layout
from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput
from cosyvoice_runtime.families import DEFAULT
from cosyvoice_runtime.text import Lexicon, Segment, TextFrontEnd, read_tokenizer
from cosyvoice_runtime.text.estimate import EstimatedTokens
from cosyvoice_runtime.text.markup import CODE_BLOCKS, EMOJI, MARKUPS, MarkupOptions

STDIN = "-"
LANGUAGE_HELP = "auto, zh, en, ... (default %(default)s)"


def add_markup(command: argparse.ArgumentParser) -> None:
    """Add the options of what is spoken of a text's markup."""
    command.add_argument(
        "--markup", choices=MARKUPS, default="auto", help="of the text (default %(default)s)"
    )
    command.add_argument("--emoji", choices=EMOJI, default="silent", help="default %(default)s")
    command.add_argument(
        "--code-blocks", choices=CODE_BLOCKS, default="skipped", help="of a text (default %(default)s)"
    )


def add_read(command: argparse.ArgumentParser) -> None:
    """Add the options of ``cosyvoice read``."""
    command.add_argument("text", nargs="?", default=STDIN, help="what to read; - (default) is a pipe's text")
    command.add_argument("--file", type=Path, help="a file's text instead, UTF-8")
    command.add_argument("--language", default="auto", help=LANGUAGE_HELP)
    command.add_argument("--checkpoint", type=Path, help="its tokenizer and family; without, as CosyVoice2")
    add_markup(command)
    command.add_argument("--lexicon", type=Path, help="file of words that are spoken as something else is")
    command.add_argument(
        "--jsonl",
        action="store_true",
        help='lines {"text": ..., "language": ...} come through the pipe; each is answered by one line, '
        '{"segments": [...]} or {"error": ...}',
    )
    command.set_defaults(run=read)


def read(options: argparse.Namespace) -> None:
    """Print each segment of a text on a line of its own, or an answer for each line of a pipe.

    Raises:
        InvalidInput: the text, the language or the lexicon can't be used.
    """
    markup = MarkupOptions(options.markup, options.emoji, options.code_blocks)
    front_end = front_end_of(options.checkpoint, options.lexicon, markup)
    if options.jsonl:
        for line in sys.stdin:
            print(json.dumps(_answer(front_end, line, options.language), ensure_ascii=False), flush=True)
        return
    for segment in front_end.spoken(_text(options), options.language):
        print("\n".join(_lines(segment)))


def _lines(segment: Segment) -> Iterator[str]:
    """A segment as it is shown: its pause, its voice and pace where they are not the usual, its words."""
    if segment.pause_s:
        yield f"({segment.pause_s:g} s)"
    if segment.text:
        rate, voice = segment.manner
        manner = ", ".join(filter(None, (voice, "" if rate == 1 else f"{rate:g} times as fast")))
        yield f"({manner}) {segment.text.strip()}" if manner else segment.text.strip()


def front_end_of(checkpoint: Path | None, lexicon: Path | None, markup: MarkupOptions) -> TextFrontEnd:
    """The front end of a checkpoint; None for one that counts tokens by estimate, as of CosyVoice2."""
    if checkpoint is None:
        words = None if lexicon is None else Lexicon.read(lexicon, DEFAULT.special_tokens)
        return TextFrontEnd(EstimatedTokens(), lexicon=words, markup=markup)
    layout = Layout(checkpoint)
    words = None if lexicon is None else Lexicon.read(lexicon, layout.family.special_tokens)
    tokenizer = read_tokenizer(layout)
    return TextFrontEnd(tokenizer, family=layout.family, lexicon=words, adds_instruction=True, markup=markup)


def _text(options: argparse.Namespace) -> str:
    if options.file is not None:
        return str(options.file.read_text(encoding="utf-8"))
    return sys.stdin.read() if options.text == STDIN else str(options.text)


def _answer(front_end: TextFrontEnd, line: str, language: str) -> dict[str, object]:
    """The segments of one line's text, or why it can't be spoken."""
    try:
        asked = json.loads(line)
        if not isinstance(asked, dict) or not isinstance(asked.get("text"), str):
            raise InvalidInput("line", line, 'an object with a "text"')
        return {"segments": front_end.segments(asked["text"], asked.get("language") or language)}
    except (CosyVoiceError, ValueError) as error:
        return {"error": str(error)}
