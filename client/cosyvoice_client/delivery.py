"""Commands write, play and report speech as it comes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from cosyvoice_client.chunk import INCOMPLETE, AudioChunk
from cosyvoice_client.errors import ClientError, InvalidArgumentError, RefusedError
from cosyvoice_client.player import Player, open_player
from cosyvoice_client.resampler import at_rate
from cosyvoice_client.timeline import Timeline
from cosyvoice_client.writer import STDOUT, Write, audio_writer, check_target, rate_of

STDIN = "-"
"""As a text: the lines of standard input."""
DEFAULT_OUTPUT = "speech.wav"

Utter = Callable[[str], Iterable[AudioChunk]]


def deliver(options: argparse.Namespace, utter: Utter) -> None:
    """Speak ``options.text``, or one line of standard input after the other, into one recording.

    The file is made when the first chunk is there, so that a failed request leaves an older one alone.

    Raises:
        ClientError: ``utter`` did, there was no speech, it stalled, or it can't be written or played; of a
            line of standard input it says which.
    """
    output, rate = target(options), output_rate(options)
    with ExitStack() as resources:
        sinks = Sinks(resources, output, play=options.play, quiet=options.quiet)
        place = None
        for place, text in texts(options.text):
            with closed(utter(text)) as chunks:
                sinks.take(_named(place, at_rate(chunks, rate)))
        if place is None:
            raise InvalidArgumentError("standard input: no line has a text")
        if not sinks.heard:
            raise RefusedError("the server sent no audio")


def target(options: argparse.Namespace) -> str | None:
    """Where to write; None for nowhere.

    Raises:
        InvalidArgumentError: that is no place to write to.
    """
    output: str | None = options.output
    if output is None and not options.play:
        output = DEFAULT_OUTPUT
    if output is not None:
        check_target(output)
    return output


def output_rate(options: argparse.Namespace) -> int | None:
    """Samples per second that are written and played; None for those of the speech.

    Raises:
        InvalidArgumentError: the file can't have the rate that is asked for.
    """
    asked: int | None = options.sample_rate
    return asked if options.output is None else rate_of(options.output, asked)


def texts(given: str) -> Iterator[tuple[str, str]]:
    """The text given, or the lines of standard input, each as soon as it is there and with its place.

    Lines without a letter or digit, such as ornaments between scenes, are passed over as empty ones are.

    Raises:
        InvalidArgumentError: a line is no UTF-8, or standard input is closed.
    """
    if given != STDIN:
        yield "", given
        return
    if sys.stdin is None:
        raise InvalidArgumentError("standard input: it is closed")
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            text = line.decode().strip()
        except UnicodeDecodeError:
            raise InvalidArgumentError(f"line {number}: valid UTF-8 is expected") from None
        if any(map(str.isalnum, text)):
            yield f"line {number}", text


class Sinks:
    """Where the samples go: a file, a player, or both.

    Attributes:
        heard: whether any samples came.
    """

    def __init__(self, resources: ExitStack, output: str | None, *, play: bool, quiet: bool) -> None:
        self._resources = resources
        self._output = output
        self._quiet = quiet
        self._write: Write | None = None
        self._playing = resources.enter_context(ExitStack())
        self._player = self._playing.enter_context(_announced_player(quiet)) if play else None
        self.heard = False

    def take(self, chunks: Iterable[AudioChunk]) -> None:
        """Write, play and report the chunks of one utterance."""
        progress = Progress(_ignore if self._quiet else tell)
        try:
            for chunk in progress.watch(chunks):
                self._take(chunk)
        finally:
            progress.summarise(self._output)

    def _take(self, chunk: AudioChunk) -> None:
        self.heard |= len(chunk.samples) > 0
        if self._output is not None:
            if self._write is None:
                self._write = self._resources.enter_context(audio_writer(self._output, chunk.sample_rate))
            self._write(chunk.samples)
        if self._player is not None:
            if self._player.rate != chunk.sample_rate:  # of a guess: nothing has been played
                self._playing.close()
                self._player = self._playing.enter_context(open_player(chunk.sample_rate))
            self._player(chunk.samples)


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
            for line in found(chunk.verification):
                self._say(line)

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


def _named(place: str, chunks: Iterable[AudioChunk]) -> Iterator[AudioChunk]:
    """Pass on the chunks; an error of theirs, or of speech that has stalled, says where the text stands."""
    try:
        has_stalled = False
        for chunk in chunks:
            yield chunk
            has_stalled |= chunk.finish_reason == INCOMPLETE
        if has_stalled:
            raise RefusedError("the speech has stalled amid its text; the rest of it is not spoken")
    except ClientError as error:
        if place:
            error.name(place)
        raise


def found(verification: Mapping[str, Any] | None) -> Iterator[str]:
    """Lines that tell what was found of a segment, and that it was drawn again."""
    if verification is None:
        return
    if not verification.get("checked", True):
        yield "not verified: nothing was there to judge by"
    if verification.get("redraws"):
        yield f"drawn again: {verification['redraws']}"
    for each in verification.get("findings", ()):
        turn = f", in turns[{each['turn']}]" if "turn" in each else ""
        yield f"{each['kind']}: {each['text']!r}, characters {each['start']} to {each['end']}{turn}"


@contextmanager
def closed(chunks: Iterable[AudioChunk]) -> Iterator[Iterable[AudioChunk]]:
    """Closes a generator at the end, which cancels what it asked for."""
    try:
        yield chunks
    finally:
        if isinstance(chunks, Generator):
            chunks.close()


def _announced_player(quiet: bool) -> Player:
    player = open_player()
    if not quiet:
        tell(f"playing through {player.name}")
    return player


def tell(line: str) -> None:
    """Say something beside the speech, which may be on standard output."""
    print(line, file=sys.stderr, flush=True)


def _ignore(line: str) -> None:
    """A quiet command's report says nothing."""
