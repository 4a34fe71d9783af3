"""``cosyvoice``: speak a text into a file, and manage voices."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from cosyvoice_client.errors import ClientError
from cosyvoice_client.writer import audio_writer, check_target
from cosyvoice_runtime.audio.read import read_audio
from cosyvoice_runtime.checkpoint import Layout
from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput
from cosyvoice_runtime.lm import SamplingOptions
from cosyvoice_runtime.pipeline import AudioChunk, SpeechRequest, Synthesizer
from cosyvoice_runtime.voice import Voice, VoiceStore
from cosyvoice_runtime.voice.extractors import Extractors, checkpoint_id

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
DEFAULT_VOICES = Path("~/.cache/cosyvoice/voices")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = parser().parse_args(arguments)
    logging.basicConfig(level=options.log_level.upper(), format="%(levelname)s %(name)s: %(message)s")
    torch.set_num_threads(options.threads)
    try:
        options.run(options)
    except (CosyVoiceError, ClientError) as error:
        print(f"cosyvoice: {error}", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """All commands and options."""
    root = argparse.ArgumentParser(prog="cosyvoice", description=__doc__)
    commands = root.add_subparsers(required=True, metavar="COMMAND")
    _add_speak(commands.add_parser("speak", help="speak a text into a file"))
    _add_voice(commands.add_parser("add-voice", help="keep the voice of a reference under a name"))
    _add_list(commands.add_parser("voices", help="list the voices that are kept"))
    return root


def _add_common(command: argparse.ArgumentParser) -> None:
    command.add_argument("--checkpoint", type=Path, required=True, help="directory of the checkpoint")
    command.add_argument("--voices", type=Path, default=DEFAULT_VOICES, help="directory of kept voices")
    command.add_argument("--threads", type=int, default=1, help="CPU threads (default %(default)s)")
    command.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="warning")


def _add_reference(command: argparse.ArgumentParser, *, required: bool) -> None:
    command.add_argument(
        "--reference", type=Path, required=required, help="recording of the voice, 0.5 to 30 s"
    )
    command.add_argument("--reference-text", default="", help="what the reference says")


def _add_speak(command: argparse.ArgumentParser) -> None:
    _add_common(command)
    _add_reference(command, required=False)
    command.add_argument("--device", default="cpu", help="cpu or cuda (default %(default)s)")
    command.add_argument("--dtype", choices=DTYPES, default="float32", help="of speech LM and flow")
    command.add_argument("text", help="what to speak")
    command.add_argument("-o", "--output", type=Path, default=Path("speech.wav"), help="wav or flac file")
    command.add_argument("--voice", help="name of a kept voice or of a speaker in the checkpoint")
    command.add_argument("--instruct", help="how to speak, in place of the reference's words")
    command.add_argument("--cross-lingual", action="store_true", help="use only how the reference sounds")
    command.add_argument("--language", default="auto", help="auto, zh, en, ... (default %(default)s)")
    command.add_argument("--speed", type=float, default=1.0, help="0.5 to 2 (default %(default)s)")
    command.add_argument("--seed", type=int, help="repeat an utterance exactly")
    command.add_argument("--sampling", choices=("ras", "nucleus", "greedy"), default="ras")
    command.add_argument(
        "--first-hop", type=int, help="cut the prompt so that this many tokens give the first chunk"
    )
    command.add_argument("--lookahead", type=int, help="mel frames the vocoder waits for")
    command.add_argument("--offline", action="store_true", help="one chunk for each segment of text")
    command.set_defaults(run=speak)


def _add_voice(command: argparse.ArgumentParser) -> None:
    _add_common(command)
    _add_reference(command, required=True)
    command.add_argument("name", help="letters, digits, dot, dash and underscore")
    command.set_defaults(run=add_voice)


def _add_list(command: argparse.ArgumentParser) -> None:
    _add_common(command)
    command.set_defaults(run=list_voices)


def speak(options: argparse.Namespace) -> None:
    """Speak a text into a file, with a line of progress for each chunk."""
    check_target(options.output)
    synthesizer = _synthesizer(options)
    request = SpeechRequest(
        text=options.text,
        voice=_voice(options, synthesizer),
        instruct_text=options.instruct,
        cross_lingual=options.cross_lingual,
        language=options.language,
        speed=options.speed,
        seed=options.seed,
        sampling=SamplingOptions(strategy=options.sampling),
        streaming=not options.offline,
    )
    with audio_writer(options.output, synthesizer.sample_rate) as write:
        for chunk in _with_progress(synthesizer.synthesize(request)):
            write(chunk.samples.cpu().numpy())
    print(options.output)


def add_voice(options: argparse.Namespace) -> None:
    """Keep a voice under a name."""
    extractors = Extractors(Layout(options.checkpoint), options.threads)
    voice = extractors.voice(read_audio(options.reference), options.reference_text)
    _store(options).register(options.name, voice)
    print(f"{options.name}: {len(voice.speech_tokens)} speech tokens, key {voice.key[:12]}")


def list_voices(options: argparse.Namespace) -> None:
    """Print the voices that are kept."""
    for entry in _store(options).entries():
        print(f"{', '.join(entry.names) or '-'}\t{entry.key[:12]}\t{entry.transcript}")


def _with_progress(chunks: Iterator[AudioChunk]) -> Iterator[AudioChunk]:
    start = time.perf_counter()
    seconds = 0.0
    for chunk in chunks:
        elapsed = time.perf_counter() - start
        seconds += len(chunk.samples) / chunk.sample_rate
        ending = f", segment {chunk.segment} ends: {chunk.finish_reason.value}" if chunk.finish_reason else ""
        print(f"{elapsed:7.2f} s: {seconds:6.2f} s of speech{ending}", file=sys.stderr)
        yield chunk
    if seconds:
        print(f"real-time factor {elapsed / seconds:.3f}", file=sys.stderr)


def _synthesizer(options: argparse.Namespace) -> Synthesizer:
    dtype = DTYPES[options.dtype]
    return Synthesizer.from_checkpoint(
        options.checkpoint,
        device=options.device,
        lm_dtype=dtype,
        flow_dtype=dtype,
        threads=options.threads,
        lookahead_frames=options.lookahead,
        first_hop=options.first_hop,
    )


def _store(options: argparse.Namespace) -> VoiceStore:
    return VoiceStore(options.voices.expanduser(), checkpoint_id(Layout(options.checkpoint)))


def _voice(options: argparse.Namespace, synthesizer: Synthesizer) -> Voice:
    """The voice asked for: of a reference, kept under a name, or a speaker of the checkpoint."""
    if options.reference is not None:
        return synthesizer.voice(read_audio(options.reference), options.reference_text)
    speakers = synthesizer.speakers
    if options.voice is None:
        if not speakers:
            raise InvalidInput("voice", None, "give --reference, or --voice: the checkpoint has no speakers")
        return next(iter(speakers.values()))
    return speakers.get(options.voice) or _store(options).get(options.voice, speakers)
