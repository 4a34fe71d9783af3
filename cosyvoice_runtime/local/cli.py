"""``cosyvoice``: speak texts without a server, show how they are read, and keep voices."""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from cosyvoice_client.captions import Captions, add_caption_files, asked_captions
from cosyvoice_client.chunk import AudioChunk
from cosyvoice_client.command import INTERRUPTED, TEXT_HELP, add_output
from cosyvoice_client.delivery import deliver, output_rate, target, tell
from cosyvoice_client.errors import ClientError
from cosyvoice_client.resampler import at_rate
from cosyvoice_client.script import add_script, read_script
from cosyvoice_client.words import TimedWord
from cosyvoice_runtime.audio.levelling import check_target
from cosyvoice_runtime.audio.read import read_audio
from cosyvoice_runtime.checkpoint import Layout, load_speakers
from cosyvoice_runtime.checkpoint.layout import VOICE_ADAPTERS
from cosyvoice_runtime.engine.utterance.turn import TURN_PAUSE_S, Turn, named, read_turns
from cosyvoice_runtime.engine.utterance.verifier import load_verifier
from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput
from cosyvoice_runtime.local import SpeechRequest, Synthesizer
from cosyvoice_runtime.local.book import add_book
from cosyvoice_runtime.local.kept_voices import kept_voices
from cosyvoice_runtime.local.levelled import levelled
from cosyvoice_runtime.local.reading import add_read
from cosyvoice_runtime.local.speech_options import (
    DEFAULT_VOICES,
    add_checkpoint,
    add_common,
    add_manner,
    add_voice,
    check_voice,
    manner_of,
    named_voice,
    synthesizer_of,
    voice_of,
)
from cosyvoice_runtime.local.verifying import add_verify
from cosyvoice_runtime.text.markup.unsaid import blanked
from cosyvoice_runtime.voice.extractors import Extractors
from cosyvoice_runtime.voice.names import checked_name


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # The terminal's encoding may lack a character of the name.
        sys.stdout.reconfigure(errors="backslashreplace")
    logging.basicConfig(level=options.log_level.upper(), format="%(levelname)s %(name)s: %(message)s")
    try:
        options.run(options)
        if sys.stdout is not None:
            sys.stdout.flush()
    except (CosyVoiceError, ClientError, OSError) as error:
        print(f"cosyvoice: {error}", file=sys.stderr)
        _drop_output()
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _drop_output() -> None:
    # The interpreter would try to write the rest again, and report a second error.
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parser() -> argparse.ArgumentParser:
    """The parser of all commands and options."""
    root = argparse.ArgumentParser(prog="cosyvoice", description=__doc__)
    commands = root.add_subparsers(required=True, metavar="COMMAND")
    _add_speak(commands.add_parser("speak", help="speak a text, or what comes through a pipe"))
    add_book(commands.add_parser("book", help="read a book aloud, into one file with chapters"))
    _add_read(commands.add_parser("read", help="show a text as it would be spoken"))
    _add_voices(commands.add_parser("voices", help="list the voices that are kept, add or remove one"))
    return root


def _add_speak(command: argparse.ArgumentParser) -> None:
    add_common(command)
    add_checkpoint(command)
    add_voice(command)
    said = command.add_mutually_exclusive_group(required=True)
    said.add_argument("text", nargs="?", help=TEXT_HELP)
    add_script(said, command)
    add_output(command)
    add_caption_files(command)
    add_manner(command)
    command.add_argument(
        "--target-lufs",
        type=float,
        metavar="LUFS",
        help="loudness, -40 to -10; with --offline measured over the whole text (default: as it comes)",
    )
    add_verify(command)
    command.add_argument(
        "--first-hop", type=int, help="cut the prompt so that this many tokens give the first chunk"
    )
    command.add_argument("--offline", action="store_true", help="one chunk for each segment of text")
    command.set_defaults(run=speak)


def _add_read(command: argparse.ArgumentParser) -> None:
    add_common(command)
    add_read(command)


def _add_voices(command: argparse.ArgumentParser) -> None:
    add_common(command)
    command.set_defaults(run=list_voices)
    actions = command.add_subparsers(metavar="ACTION", help="default: list")
    _add_list(actions.add_parser("list", help="names, keys, words and adapters of all voices"))
    _add_add(actions.add_parser("add", help="keep the voice of a recording under a name"))
    _add_remove(actions.add_parser("remove", help="forget a name, and its voice with the last one"))


def _add_list(command: argparse.ArgumentParser) -> None:
    add_common(command, inner=True)


def _add_add(command: argparse.ArgumentParser) -> None:
    add_common(command, inner=True)
    add_checkpoint(command)
    command.add_argument("file", type=Path, help="recording of the voice, 0.5 to 30 s")
    command.add_argument("--text", required=True, help="what the recording says")
    command.add_argument("--adapter", help="of the checkpoint's folder adapters, that speaks with the voice")
    command.add_argument("--name", required=True, help="letters of any script, digits, dot, dash, underscore")
    command.set_defaults(run=keep_voice)


def _add_remove(command: argparse.ArgumentParser) -> None:
    add_common(command, inner=True)
    command.add_argument("name", help="of the voice, or its whole key")
    command.set_defaults(run=forget_voice)


def speak(options: argparse.Namespace) -> None:
    """Speak to a file or a loudspeaker, with a line of progress for each chunk."""
    target(options)  # Errors of the output are found before anything is loaded.
    rate = output_rate(options)
    check_voice(options)
    if options.target_lufs is not None:
        check_target(options.target_lufs)
    turns = _turns(options)
    verifier = None if options.verifier is None else load_verifier(options.verifier)
    synthesizer = synthesizer_of(options, first_hop=options.first_hop, verifier=verifier)
    find_voice = partial(named_voice, options, synthesizer)
    if turns:
        with named(0):
            voice = find_voice(turns[0].voice)
    else:
        voice = voice_of(options, synthesizer)
    request = partial(
        SpeechRequest,
        voice=voice,
        seed=options.seed,
        streaming=not options.offline,
        verify=options.verify,
        find_voice=find_voice,
        turns=turns,
        turn_pause_s=TURN_PAUSE_S if options.turn_pause_s is None else options.turn_pause_s,
        **manner_of(options),
    )
    captions = _captions(options, synthesizer)

    def utter(text: str) -> Iterator[AudioChunk]:
        chunks = _spoken(synthesizer, partial(request, text), words=captions is not None)
        if captions is not None:
            chunks = captions.watch("\n\n".join([text, *(turn.text for turn in turns)]), chunks)
        return levelled(at_rate(chunks, rate), options.target_lufs, whole=options.offline)

    with nullcontext() if captions is None else captions.written():
        deliver(options, utter)


def _turns(options: argparse.Namespace) -> list[Turn]:
    """The turns of the script that the options name, in place of a text; none without one."""
    if options.script is None:
        if options.turn_pause_s is not None:
            raise InvalidInput("turn_pause_s", options.turn_pause_s, "it goes with --script only")
        return []
    for field in ("voice", "reference"):
        if (given := getattr(options, field)) is not None:
            limit = "none beside --script: turns have voices of their own"
            raise InvalidInput(field, str(given), limit)
    options.text = ""
    return read_turns(json.dumps(read_script(options.script)))


def _captions(options: argparse.Namespace, synthesizer: Synthesizer) -> Captions | None:
    """Make what writes the files of word times that are asked for; None for no file."""
    captions = asked_captions(options, partial(blanked, markup=options.markup))
    if captions is not None and synthesizer.word_method == "estimate" and not options.quiet:
        tell(f"word times are an estimate: {synthesizer.no_heads}")
    return captions


def _spoken(
    synthesizer: Synthesizer, request: Callable[[], SpeechRequest], *, words: bool
) -> Iterator[AudioChunk]:
    """The chunks of an utterance, streamed as from a server."""
    start = time.perf_counter()
    try:
        for chunk in synthesizer.synthesize(request(), words=words):
            yield AudioChunk(
                chunk.samples,
                time.perf_counter() - start,
                chunk.finish_reason.value if chunk.finish_reason else "",
                sample_rate=chunk.sample_rate,
                words=[TimedWord(*word) for word in chunk.words],
                words_by=chunk.words_by or "",
                verification=None if chunk.verification is None else chunk.verification.told(),
            )
    except CosyVoiceError as error:
        raise ClientError(str(error)) from error


def list_voices(options: argparse.Namespace) -> None:
    """Print the stored voices."""
    if options.voices == DEFAULT_VOICES and not options.voices.expanduser().exists():
        return  # No voice has been stored yet.
    for voice in kept_voices(options.voices).lines():
        adapter = f"\tadapter {voice.adapter}" if voice.adapter else ""
        names, words = ", ".join(voice.names) or "-", _on_one_line(voice.transcript)
        print(f"{names}\t{voice.key[:12]}\t{words}{adapter}")


def _on_one_line(text: str) -> str:
    """A text with line breaks and control characters escaped."""
    acting = ("Cc", "Zl", "Zp")
    return "".join(
        character.encode("unicode_escape").decode()
        if unicodedata.category(character) in acting
        else character
        for character in text
    )


def keep_voice(options: argparse.Namespace) -> None:
    """Store a voice under a name."""
    layout, name = Layout(options.checkpoint), checked_name(options.name)
    _require_free(name, layout)  # Errors of the name are found before anything is loaded.
    adapters = layout.voice_adapters
    if options.adapter and options.adapter not in adapters:
        limit = f"a folder in {layout.directory / VOICE_ADAPTERS}: {', '.join(adapters) or 'it has none'}"
        raise InvalidInput("adapter", options.adapter, limit)
    kept = kept_voices(options.voices)
    if kept.is_clients(name):
        limit = (
            "another name is needed: a client has sent a voice of this name, with a recording and a consent"
        )
        raise InvalidInput("voice", name, limit)
    extractors = Extractors(layout, options.threads, options.published_prompt_rate)
    voice = extractors.voice(read_audio(options.file, "file"), options.text)
    if options.adapter:
        voice = voice.with_adapter(options.adapter)
    kept.add(name, voice)
    print(f"{options.name}: {len(voice.speech_tokens)} speech tokens, key {voice.key[:12]}")


def _require_free(name: str, layout: Layout) -> None:
    if name in load_speakers(layout):  # The checkpoint's speakers take precedence over stored voices.
        raise InvalidInput("voice", name, "another name is needed: a speaker of the checkpoint has this one")


def forget_voice(options: argparse.Namespace) -> None:
    """Delete a voice, and the reference that an API client has sent for it."""
    kept_voices(options.voices).remove(options.name)
