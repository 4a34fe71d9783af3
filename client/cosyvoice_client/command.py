"""Options, progress and exit codes of both commands."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from cosyvoice_client.captions import add_caption_files, asked_captions, without_tags
from cosyvoice_client.chunk import AudioChunk
from cosyvoice_client.delivery import DEFAULT_OUTPUT, deliver, tell
from cosyvoice_client.errors import ClientError, InvalidArgumentError
from cosyvoice_client.reference import SERVER_RATE, Reference, read_reference
from cosyvoice_client.request import MARKUPS, OPTIONS, TRIMS, WAYS_TO_VERIFY, SpeechRequest
from cosyvoice_client.script import add_script, read_script, said

EXIT_CODES = """exit codes:
  0   spoken
  1   the server refused or failed
  2   an option or file can't be used; nothing was sent
  3   the server can't be reached or is too busy: try again later
  4   nothing came from the server for --timeout seconds
  130 stopped with Ctrl-C; what had arrived is in the output"""
INTERRUPTED = 130
TEXT_HELP = "what to speak; - speaks each line of standard input as soon as it is there"
RATES = (8_000, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
"""Samples per second that a recording can have."""
OUTPUT_HELP = (
    ".wav, .flac, .mp3, .opus, .ogg, .aac, or .ulaw and .alaw for a telephone's 8000 Hz; .raw, .pcm and - "
    "for standard output are samples alone; "
    f"default {DEFAULT_OUTPUT}, or none with --play"
)


def request_parser(
    description: str | None, url: str, model: str, timeout_s: float
) -> argparse.ArgumentParser:
    """Options of a server and a request, with the defaults given."""
    parser = argparse.ArgumentParser(
        description=description, epilog=EXIT_CODES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    said = parser.add_mutually_exclusive_group(required=True)
    said.add_argument("--text", "--target-text", help=TEXT_HELP)
    add_script(said, parser)
    add_output(parser)
    add_caption_files(parser)
    _add_server(parser.add_argument_group("server"), url, model, timeout_s)
    add_voice(parser.add_argument_group("voice (default: the server's)"))
    add_options(parser.add_argument_group("how it is spoken (defaults: the server's)"))
    return parser


def speak(options: argparse.Namespace, utter: Callable[[SpeechRequest], Iterable[AudioChunk]]) -> None:
    """Speak what the options ask for, with ``utter`` for each text.

    Raises:
        ClientError: as :func:`deliver`; or the reference or the script can't be read, or an option's value
            can't be sent.
    """
    if options.script is not None:
        options.text, options.turns = "", read_script(options.script)
    elif options.turn_pause_s is not None:
        raise InvalidArgumentError("--turn-pause: it is of no use without --script")
    voice, how = reference(options), spoken_options(options)
    is_plain = options.text_markup == "plain"
    captions = asked_captions(options, str if is_plain else without_tags)
    if captions is None:
        deliver(options, lambda text: utter(SpeechRequest(text, voice, **how)))
        return

    def captioned(text: str) -> Iterable[AudioChunk]:
        asked = SpeechRequest(text, voice, words=True, **how)
        return captions.watch(text or said(asked.turns), utter(asked))

    with captions.written():
        deliver(options, captioned)
    if "estimate" in captions.method and not options.quiet:
        tell("word times are an estimate")


def add_output(parser: argparse.ArgumentParser) -> None:
    """Options that say where the speech goes."""
    parser.add_argument("-o", "--output", "--output-audio", default=None, metavar="FILE", help=OUTPUT_HELP)
    about = f"of the output: {', '.join(map(str, RATES))}; default: that of the speech"
    parser.add_argument("--sample-rate", type=int, choices=RATES, metavar="HZ", help=about)
    parser.add_argument("--play", action="store_true", help="play aloud as it comes")
    parser.add_argument("--quiet", action="store_true", help="no progress")


def reference(options: argparse.Namespace) -> Reference | None:
    """The reference that the options name, read from its file; None without one.

    Raises:
        InvalidArgumentError: it can't be read, or its words are given without its file.
    """
    if options.reference is not None:
        return read_reference(options.reference, options.reference_text, options.reference_rate)
    if options.reference_text:
        raise InvalidArgumentError("--reference-text: it is of no use without --reference")
    return None


def spoken_options(options: argparse.Namespace) -> dict[str, Any]:
    """The optional inputs that the options give, as arguments of a SpeechRequest."""
    given = {name: getattr(options, name) for name in OPTIONS if hasattr(options, name)}
    if options.lexicon is not None:
        given["lexicon"] = _words(options.lexicon)
    return given


def _words(lexicon: Path) -> str:
    try:
        return lexicon.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeError) as error:
        raise InvalidArgumentError(f"--lexicon: {lexicon} is no file of words ({error})") from error


def run(main: Callable[[], None]) -> int:
    """Call ``main`` and turn what it raises into a line and an exit code."""
    try:
        main()
    except ClientError as error:
        tell(f"error: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        tell("stopped")
        return INTERRUPTED
    return 0


def _add_server(group: argparse._ArgumentGroup, url: str, model: str, timeout_s: float) -> None:
    group.add_argument("--url", "--server-url", default=url, help="default: %(default)s")
    group.add_argument("--model", "--model-name", default=model, help="default: %(default)s")
    group.add_argument(
        "--timeout",
        type=_seconds,
        default=timeout_s,
        metavar="S",
        help="longest silence of the server (%(default)g)",
    )


def _seconds(text: str) -> float:
    if not 0 < (seconds := float(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no time of more than 0 seconds")
    return seconds


def add_voice(group: argparse._ArgumentGroup) -> None:
    """Options that say with which voice."""
    group.add_argument("--voice", metavar="NAME", help="a voice that the server knows")
    group.add_argument(
        "--reference",
        "--reference-audio",
        type=Path,
        metavar="FILE",
        help="a recording of the voice, 0.5 to 30 s; without its words the beginning of a longer one",
    )
    group.add_argument("--reference-text", default="", metavar="TEXT", help="what the reference says")
    group.add_argument(
        "--reference-rate",
        type=int,
        default=SERVER_RATE,
        metavar="HZ",
        help="rate to send the reference at, 16000 to 48000 (%(default)s)",
    )
    group.add_argument(
        "--cross-lingual", action="store_true", default=None, help="use only how the reference sounds"
    )


def add_options(group: argparse._ArgumentGroup) -> None:
    """Options that say how."""
    group.add_argument("--instruct-text", "--instruct", metavar="TEXT", help="how to speak")
    group.add_argument("--language", metavar="TAG", help="auto, zh, en, ...")
    group.add_argument("--markup", dest="text_markup", choices=MARKUPS, help="what the text is written in")
    group.add_argument(
        "--lexicon", type=Path, metavar="FILE", help="lines of a word, a tab and what is spoken for it"
    )
    group.add_argument("--speed", type=float, help="0.5 to 2")
    group.add_argument("--trim-silence", choices=TRIMS, help="silence left out before, or around the speech")
    for name, between in (("paragraph", "paragraphs, beside"), ("sentence", "segments, in place of")):
        group.add_argument(
            f"--{name}-pause",
            dest=f"{name}_pause_s",
            type=float,
            metavar="S",
            help=f"silence between two {between} that of their own, 0 to 10 s",
        )
    group.add_argument(
        "--start-character",
        type=int,
        metavar="N",
        help="begin with the segment of the text that holds this character, counted from 0",
    )
    group.add_argument(
        "--verify", choices=WAYS_TO_VERIFY, help="tell words that are not said once, or draw them again"
    )
    group.add_argument("--seed", type=int, help="repeat an utterance exactly")
    group.add_argument("--sampling-strategy", metavar="NAME", help="ras, nucleus or greedy")
    group.add_argument("--top-k", type=int)
    group.add_argument("--top-p", type=float)
    group.add_argument("--temperature", type=float)
    group.add_argument("--repetition-penalty", type=float)
    group.add_argument(
        "--max-tokens",
        type=int,
        help="most speech tokens of a segment of the text, 25 for a second (50 with CosyVoice-300M)",
    )
