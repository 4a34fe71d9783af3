"""Options of how a text is spoken, and what they stand for: the checkpoint's networks, and a voice."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from cosyvoice_runtime.audio.read import read_audio
from cosyvoice_runtime.audio.silence import TRIMS
from cosyvoice_runtime.checkpoint import Layout
from cosyvoice_runtime.engine.utterance.verifier import Verifier
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm import SamplingOptions
from cosyvoice_runtime.local import Synthesizer
from cosyvoice_runtime.local.kept_voices import bucket_url, place
from cosyvoice_runtime.local.networks import RUNTIMES, require_runtime
from cosyvoice_runtime.local.reading import LANGUAGE_HELP, add_markup
from cosyvoice_runtime.text.markup import MarkupOptions
from cosyvoice_runtime.voice import Voice, VoiceStore
from cosyvoice_runtime.voice.cached_voices import CachedVoices
from cosyvoice_runtime.voice.extractors import checkpoint_id
from cosyvoice_runtime.voice.opening import open_voices

DTYPES = ("float32", "bfloat16", "float16")
DEFAULT_VOICES = Path("~/.cache/cosyvoice/voices")


def add_common(command: argparse.ArgumentParser, *, inner: bool = False) -> None:
    """Add the options that all commands have; an inner command keeps the values of its parent's."""
    places = argparse.SUPPRESS if inner else DEFAULT_VOICES
    about = "directory of kept voices, or s3://BUCKET/PREFIX"
    command.add_argument("--voices", type=place, default=places, help=about)
    level = argparse.SUPPRESS if inner else "warning"
    command.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default=level)


def add_checkpoint(
    command: argparse.ArgumentParser, instead: argparse._MutuallyExclusiveGroup | None = None
) -> None:
    """Add the options of the checkpoint and its extractors.

    Args:
        instead: the group of which the checkpoint is one; None where it has to be given.
    """
    about = "directory of the checkpoint"
    if instead is None:
        command.add_argument("--checkpoint", type=Path, required=True, help=about)
    else:
        instead.add_argument("--checkpoint", type=Path, help=about)
    command.add_argument("--threads", type=int, default=1, help="CPU threads (default %(default)s)")
    command.add_argument(
        "--published-prompt-rate",
        action="store_true",
        help="read references for CosyVoice-300M at 24 kHz, by the published code's mistake",
    )


def add_voice(command: argparse.ArgumentParser) -> None:
    """Add the options of the voice, and of what computes."""
    command.add_argument("--reference", type=Path, help="recording of the voice, 0.5 to 30 s")
    command.add_argument("--reference-text", default="", help="what the reference says")
    command.add_argument("--device", default="cpu", help="cpu or cuda (default %(default)s)")
    command.add_argument(
        "--runtime",
        choices=RUNTIMES,
        default="torch",
        help="onnx: ONNX Runtime on a CPU (default %(default)s)",
    )
    command.add_argument("--dtype", choices=DTYPES, default="float32", help="of speech LM and flow")
    command.add_argument("--voice", help="name of a kept voice or of a speaker in the checkpoint")


def check_voice(options: argparse.Namespace) -> None:
    """Raise an InvalidInput where the options name two voices, or the words of no reference."""
    if options.reference is not None and options.voice is not None:
        raise InvalidInput("voice", options.voice, "none beside --reference, which is a voice, too")
    if options.reference is None and options.reference_text:
        raise InvalidInput("reference_text", options.reference_text, "none without --reference")


def add_manner(command: argparse.ArgumentParser) -> None:
    """Add the options of how a text is read and spoken."""
    command.add_argument("--instruct", help="how to speak, in place of the reference's words")
    command.add_argument("--cross-lingual", action="store_true", help="use only how the reference sounds")
    command.add_argument("--language", default="auto", help=LANGUAGE_HELP)
    command.add_argument("--lexicon", type=Path, help="file of words that are spoken as something else is")
    command.add_argument("--polyphones", action="store_true", help="tell CosyVoice3 readings of Chinese")
    add_markup(command)
    command.add_argument("--speed", type=float, default=1.0, help="0.5 to 2 (default %(default)s)")
    command.add_argument("--seed", type=int, help="repeat an utterance exactly")
    command.add_argument(
        "--trim-silence", choices=TRIMS, default="off", help="silence left out before, or around the speech"
    )
    command.add_argument("--sampling", choices=("ras", "nucleus", "greedy"), default="ras")
    command.add_argument("--lookahead", type=int, help="mel frames the vocoder waits for")


def manner_of(options: argparse.Namespace) -> dict[str, Any]:
    """How a text is spoken, as arguments of a :class:`SpeechRequest`."""
    return {
        "instruct_text": options.instruct,
        "cross_lingual": options.cross_lingual,
        "language": options.language,
        "speed": options.speed,
        "sampling": SamplingOptions(strategy=options.sampling),
        "trim_silence": options.trim_silence,
    }


def synthesizer_of(
    options: argparse.Namespace, *, first_hop: int | None = None, verifier: Verifier | None = None
) -> Synthesizer:
    """The networks that the options ask for; raises as :meth:`Synthesizer.from_checkpoint` does."""
    require_runtime(options.runtime)
    dtypes = {}
    if options.runtime == "torch":
        import torch  # The import takes seconds, which commands on stored voices do without.

        dtypes = dict.fromkeys(("lm_dtype", "flow_dtype"), getattr(torch, options.dtype))
    elif options.dtype != "float32":
        raise InvalidInput("dtype", options.dtype, f"float32 with runtime {options.runtime}")
    synthesizer = Synthesizer.from_checkpoint(
        options.checkpoint,
        device=options.device,
        threads=options.threads,
        lookahead_frames=options.lookahead,
        first_hop=first_hop,
        runtime=options.runtime,
        lexicon=options.lexicon,
        polyphones=options.polyphones,
        markup=MarkupOptions(options.markup, options.emoji, options.code_blocks),
        published_prompt_rate=options.published_prompt_rate,
        verifier=verifier,
        **dtypes,
    )
    if dtypes:
        torch.set_num_threads(options.threads)
    return synthesizer


def _store(options: argparse.Namespace) -> VoiceStore | CachedVoices:
    identity = checkpoint_id(Layout(options.checkpoint))
    if isinstance(options.voices, Path):
        return VoiceStore(options.voices.expanduser(), identity)
    return open_voices(DEFAULT_VOICES.expanduser(), bucket_url(options.voices), identity)


def voice_of(options: argparse.Namespace, synthesizer: Synthesizer) -> Voice:
    """The voice that was asked for: from a reference, from the store, or a speaker of the checkpoint."""
    if options.reference is not None:
        words = options.reference_text
        return synthesizer.voice(
            read_audio(options.reference, "reference", wordless=not words.strip()), words
        )
    if options.voice is None and not synthesizer.speakers:
        raise InvalidInput("voice", None, "give --reference, or --voice: the checkpoint has no speakers")
    return named_voice(options, synthesizer, options.voice or "")


def named_voice(options: argparse.Namespace, synthesizer: Synthesizer, name: str) -> Voice:
    """A speaker of the checkpoint, or a voice of the store; without a name the first speaker, if any."""
    speakers = synthesizer.speakers
    if speakers and not name:
        return next(iter(speakers.values()))
    return speakers.get(name) or _store(options).get(name, speakers)
