"""What both commands share: options, progress, exit codes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from cosyvoice_client.chunk import AudioChunk
from cosyvoice_client.errors import ClientError, InvalidArgumentError, RefusedError
from cosyvoice_client.player import Player, open_player
from cosyvoice_client.reference import SERVER_RATE, Reference, read_reference
from cosyvoice_client.request import OPTIONS, SpeechRequest
from cosyvoice_client.timeline import Timeline
from cosyvoice_client.writer import STDOUT, audio_writer, check_target

EXIT_CODES = """exit codes:
  0   spoken
  1   the server refused or failed
  2   an option or file can't be used; nothing was sent
  3   the server can't be reached or is too busy: try again later
  4   nothing came from the server for --timeout seconds
  130 stopped with Ctrl-C; what had arrived is in the output"""
INTERRUPTED = 130


def request_parser(
    description: str | None, url: str, model: str, timeout_s: float
) -> argparse.ArgumentParser:
    """Options of a server and a request, with the defaults given."""
    parser = argparse.ArgumentParser(
        description=description, epilog=EXIT_CODES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", "--target-text", required=True, help="what to speak; - reads it from stdin")
    parser.add_argument("-o", "--output", "--output-audio", default=None, metavar="FILE", help="see above")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    _add_server(parser.add_argument_group("server"), url, model, timeout_s)
    add_voice(parser.add_argument_group("voice (default: the server's)"))
    add_options(parser.add_argument_group("how it is spoken (defaults: the server's)"))
    return parser


def speech_request(options: argparse.Namespace) -> SpeechRequest:
    """The request that the options describe.

    Raises:
        InvalidArgumentError: the reference can't be read, or an option's value can't be sent.
    """
    text = sys.stdin.read().strip() if options.text == "-" else options.text
    return SpeechRequest(text, reference(options), **spoken_options(options))


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
    return {name: getattr(options, name) for name in OPTIONS}


def deliver(
    chunks: Iterable[AudioChunk], output: str | None, *, play: bool = False, quiet: bool = False
) -> None:
    """Write, play and report chunks as they arrive; ``output`` None writes nothing.

    The file is made when the first chunk is there, so that a failed request leaves an older one alone.

    Raises:
        ClientError: the chunks did, there were none, or they can't be written or played.
    """
    progress = Progress(_ignore if quiet else _tell)
    sinks: list[Callable[..., object]] = []
    with ExitStack() as resources:
        if output is not None:
            check_target(output)
        if play:
            sinks.append(resources.enter_context(_announced_player(quiet)))
        try:
            for index, chunk in enumerate(progress.watch(chunks)):
                if output is not None and index == 0:
                    sinks.insert(0, resources.enter_context(audio_writer(output)))
                for sink in sinks:
                    sink(chunk.samples)
        finally:
            progress.summarise(output)
    if not progress.timeline.arrivals:
        raise RefusedError("the server sent no audio")


def _announced_player(quiet: bool) -> Player:
    player = open_player()
    if not quiet:
        _tell(f"playing through {player.name}")
    return player


def run(main: Callable[[], None]) -> int:
    """Call ``main`` and turn what it raises into a line and an exit code."""
    try:
        main()
    except ClientError as error:
        _tell(f"error: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        _tell("stopped")
        return INTERRUPTED
    return 0


class Progress:
    """A line for every chunk, and one at the end."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.timeline = Timeline()
        self._say = say

    def watch(self, chunks: Iterable[AudioChunk]) -> Iterator[AudioChunk]:
        """The same chunks, each reported when it has been dealt with."""
        previous_s = 0.0
        for index, chunk in enumerate(chunks, 1):
            yield chunk
            self.timeline.add(chunk.arrived_s, chunk.seconds)
            ending = f", segment ends: {chunk.finish_reason}" if chunk.finish_reason else ""
            waited_ms = 1000 * (chunk.arrived_s - previous_s)
            self._say(f"chunk {index:3}: after {waited_ms:6.0f} ms, {chunk.seconds:5.2f} s of speech{ending}")
            previous_s = chunk.arrived_s

    def summarise(self, output: str | None) -> None:
        """Say what came, also if it was cut short."""
        ttfb_s, audio_s = self.timeline.ttfb_s, self.timeline.audio_s
        if ttfb_s is None:
            return
        last_s = self.timeline.arrivals[-1].at_s
        gaps_ms = [1000 * gap for gap in self.timeline.gaps_s]
        silent_ms = 1000 * sum(self.timeline.underruns_s)
        gaps = f", longest wait between chunks {max(gaps_ms):.0f} ms" if gaps_ms else ""
        target = "" if output in (None, STDOUT) else f" in {output}"
        self._say(
            f"{audio_s:.2f} s of speech{target} after {last_s:.2f} s, real-time factor {last_s / audio_s:.3f}"
        )
        self._say(f"first chunk after {1000 * ttfb_s:.0f} ms{gaps}")
        if silent_ms:
            count = len(self.timeline.underruns_s)
            self._say(f"a listener would have heard {count} silences, {silent_ms:.0f} ms together")


def _add_server(group: argparse._ArgumentGroup, url: str, model: str, timeout_s: float) -> None:
    group.add_argument("--url", "--server-url", default=url, help="default: %(default)s")
    group.add_argument("--model", "--model-name", default=model, help="default: %(default)s")
    group.add_argument(
        "--timeout",
        type=float,
        default=timeout_s,
        metavar="S",
        help="longest silence of the server (%(default)g)",
    )


def add_voice(group: argparse._ArgumentGroup) -> None:
    """Options that say with which voice."""
    group.add_argument("--voice", metavar="NAME", help="a voice that the server knows")
    group.add_argument(
        "--reference",
        "--reference-audio",
        type=Path,
        metavar="FILE",
        help="a recording of the voice, 0.5 to 30 s",
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
    group.add_argument("--speed", type=float, help="0.5 to 2")
    group.add_argument("--seed", type=int, help="repeat an utterance exactly")
    group.add_argument("--sampling-strategy", metavar="NAME", help="ras, nucleus or greedy")
    group.add_argument("--top-k", type=int)
    group.add_argument("--top-p", type=float)
    group.add_argument("--temperature", type=float)
    group.add_argument("--repetition-penalty", type=float)
    group.add_argument(
        "--max-tokens", type=int, help="most speech tokens of a segment of the text, 25 for a second"
    )


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _ignore(line: str) -> None:
    """What a quiet command says."""
