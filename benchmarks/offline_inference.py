#!/usr/bin/env python3
"""Speak a set of texts in one process, without a server: all speech tokens first, then all audio, in batches,
or with --together both at once.

    python benchmarks/offline_inference.py --output-dir out --token2wav-path CosyVoice2-0.5B \\
        --backend torch --batch-size 16 --token2wav-batch-size 16 --manifest set.txt
    python benchmarks/offline_inference.py checkpoint_dir=CosyVoice2-0.5B token2wav.kernels=plain

Engines, CUDA graphs, kernels and batching are the server's: its schedulers do the work, with its settings,
which may be given as KEY=VALUE or as variables. Every text becomes a wav file; log.txt gets the times under
the names that CosyVoice's own script uses, and what follows from them. Without --manifest or --split-name the
built-in sentences are spoken, with the --prompt-speech-path or the checkpoint's first speaker.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cosyvoice_client.writer import audio_writer
from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.audio.read import read_audio
from cosyvoice_runtime.engine.utterance.request import derived_seed
from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput
from cosyvoice_runtime.lm import SamplingOptions
from cosyvoice_runtime.settings import Machine, Settings
from cosyvoice_runtime.voice import Voice
from measuring.batches import Speech
from measuring.front_end import FrontEnd
from measuring.machine import provenance
from measuring.progress import Progress
from measuring.scheduled_stages import ScheduledStages, TextSegment
from measuring.stopwatch import Stopwatch
from measuring.workload import (
    Utterance,
    VoiceReference,
    WorkloadError,
    built_in,
    instructed,
    read_manifest,
    read_split,
)

BACKENDS = {"trtllm": "tensorrt_llm"}
"""CosyVoice's names of engines, where the settings have others."""
COPY = "@"
"""Between the name of an utterance and the number of its copy."""
NOT_URGENT = {
    "token2wav.first_chunks_beside": "false",
}
"""Nobody waits for a first chunk: batches may be as large as they can."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = parse(arguments)
    try:
        run(options)
    except (CosyVoiceError, WorkloadError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    texts = parser.add_mutually_exclusive_group()
    texts.add_argument("--manifest", type=Path, help="lines utt|prompt_text|prompt_wav|text")
    texts.add_argument("--split-name", help="of CosyVoice's data sets; needs the package datasets")
    parser.add_argument(
        "--output-dir", type=Path, default=Path("results", "offline"), help="default: %(default)s"
    )
    parser.add_argument("--prompt-text", default="", help="what --prompt-speech-path says")
    parser.add_argument("--prompt-speech-path", type=Path, help="one voice for all texts")
    parser.add_argument("--top-p", type=float, default=0.95)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--top-k", type=int, default=50)
    parser.add_argument("--repetition-penalty", type=float, default=1.1)
    parser.add_argument(
        "--sampling-strategy", default="nucleus", help="nucleus (as elsewhere), ras or greedy"
    )
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same audio")
    parser.add_argument(
        "--together", action="store_true", help="audio of texts that are spoken while others still are"
    )
    parser.add_argument(
        "--copies", type=positive, default=1, help="of each text, with seeds of their own (1)"
    )
    parser.add_argument("--runs", type=positive, default=1, help="the last one is logged")
    add_settings(parser.add_argument_group("settings, under the names of CosyVoice's script"))
    return parser.parse_args(arguments)


def add_settings(group: Any) -> None:
    group.add_argument("--token2wav-path", "--checkpoint", type=Path, help="checkpoint_dir")
    group.add_argument(
        "--llm-model-name-or-path",
        type=Path,
        help="tensorrt_llm.engine_dir or, with backend torch, tensorrt_llm.checkpoint_dir",
    )
    group.add_argument("--backend", default="torch", help="tensorrt_llm.engine: torch, vllm or trtllm")
    group.add_argument("--batch-size", type=positive, default=1, help="tensorrt_llm.max_slots (1)")
    group.add_argument("--token2wav-batch-size", type=positive, default=1, help="token2wav.max_batch (1)")
    group.add_argument("--device", help="of all networks; default: a GPU where there is one")
    group.add_argument("--dtype", help="of speech LM and flow; default: float32, on a GPU the server's")
    group.add_argument("--threads", type=positive, help="CPU threads; default: all cores")
    group.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="any setting; these win")


def positive(text: str) -> int:
    """A whole number of at least 1."""
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def settings_of(options: argparse.Namespace) -> Settings:
    """The server's settings, with what the options say.

    Raises:
        InvalidInput: an option or a setting has a value that is not accepted.
    """
    machine = Machine.here()
    engine = BACKENDS.get(options.backend, options.backend)
    weights = "checkpoint_dir" if engine == "torch" else "engine_dir"
    given = {
        "checkpoint_dir": options.token2wav_path,
        f"tensorrt_llm.{weights}": options.llm_model_name_or_path,
        "tensorrt_llm.engine": engine,
        "token2wav.backend": "torch",
        "tensorrt_llm.max_slots": options.batch_size,
        "token2wav.max_batch": options.token2wav_batch_size,
        "device": options.device,
        "tensorrt_llm.dtype": options.dtype,
        "token2wav.dtype": options.dtype,
        "threads": options.threads or machine.cores,
        **NOT_URGENT,
    }
    texts = [f"{key}={value}" for key, value in given.items() if value is not None]
    settings = Settings.read([*texts, *options.settings], os.environ)
    resolved = settings.resolved(machine)
    settings.tell_choices(resolved, machine)
    return resolved


def run(options: argparse.Namespace) -> None:
    """Load, speak everything ``--runs`` times, write wav files and the log."""
    settings = settings_of(options)
    utterances = read_utterances(options)
    torch.set_num_threads(settings.token2wav.threads)
    front_end = FrontEnd(settings.token2wav.checkpoint_dir, settings.token2wav.threads)
    with closing(ScheduledStages(settings, options.together)) as stages:
        options.output_dir.mkdir(parents=True, exist_ok=True)
        for number in range(1, options.runs + 1):
            print(f"run {number} of {options.runs}, {len(utterances)} texts", file=sys.stderr)
            log = speak_all(options, utterances, front_end, stages)
    log |= {"settings": {name: section.model_dump(mode="json") for name, section in used(settings)}}
    path = options.output_dir / "log.txt"
    path.write_text(json.dumps(log, ensure_ascii=False, indent=4), encoding="utf-8")
    print_summary(log, path)


def used(settings: Settings) -> Iterator[tuple[str, Any]]:
    """The sections that this program reads."""
    yield from ((name, settings.sections()[name]) for name in ("tensorrt_llm", "token2wav"))


def read_utterances(options: argparse.Namespace) -> list[Utterance]:
    """Texts to be spoken."""
    reference = None
    if options.prompt_speech_path is not None:
        reference = VoiceReference(options.prompt_speech_path, options.prompt_text)
    if options.manifest is not None:
        utterances = read_manifest(options.manifest)
    elif options.split_name is not None:
        utterances = read_split(options.split_name)
    else:
        utterances = built_in(reference)
    named = [
        (f"{each.name}{COPY}{copy}" if copy else each.name, each)
        for copy in range(options.copies)
        for each in utterances
    ]
    return [replace(each, name=name, reference=reference or each.reference) for name, each in named]


def speak_all(
    options: argparse.Namespace, utterances: Sequence[Utterance], front_end: FrontEnd, stages: ScheduledStages
) -> dict[str, Any]:
    """One run; returns its log."""
    watch = Stopwatch()
    with watch("pipeline"):
        segments = prepare(options, utterances, front_end, watch)
        speak = together if options.together else in_turn
        speech, waves = speak(segments, stages, watch)
        with watch("audio_save"):
            samples = save(options.output_dir, front_end.sample_rate, segments, waves)
    return make_log(options, watch.seconds, speech, samples / front_end.sample_rate)


def in_turn(
    segments: Sequence[TextSegment], stages: ScheduledStages, watch: Stopwatch
) -> tuple[list[Speech], list[Tensor]]:
    """All tokens, then all audio."""
    with watch("llm"), shown("speech LM", len(segments)) as done:
        speech = stages.speak(segments, done)
    with watch("token2wav"), shown("token2wav", len(segments)) as done:
        return speech, stages.voice(segments, speech, done)


def together(
    segments: Sequence[TextSegment], stages: ScheduledStages, watch: Stopwatch
) -> tuple[list[Speech], list[Tensor]]:
    """Tokens and audio at once; each stage's time is that from the begin to its last result."""
    left = [len(segments)]

    def spoken() -> None:
        left[0] -= 1
        if not left[0]:
            until_spoken.close()

    with ExitStack() as until_spoken, watch("token2wav"), shown("texts", len(segments)) as done:
        until_spoken.enter_context(watch("llm"))
        return stages.speak_and_voice(segments, spoken, done)


@contextmanager
def shown(name: str, total: int) -> Iterator[Callable[[], None]]:
    """Progress of a stage, which is told of each that is done."""
    progress = Progress(name, total)
    yield progress.step
    progress.end()


def prepare(
    options: argparse.Namespace, utterances: Sequence[Utterance], front_end: FrontEnd, watch: Stopwatch
) -> list[TextSegment]:
    """Voices, each made once, and prompts of all texts."""
    voices: dict[object, Voice] = {}
    segments = []
    for utterance in utterances:
        text, reference = instructed(front_end.family.usual_instruction, utterance.text, utterance.reference)
        key = None if reference is None else (str(reference.audio), reference.text)
        if key not in voices:
            voices[key] = make_voice(reference, front_end, watch)
        with watch("text_tokenization"):
            segments += cut(options, utterance.name, text, voices[key], front_end)
    return segments


def make_voice(reference: VoiceReference | None, front_end: FrontEnd, watch: Stopwatch) -> Voice:
    if reference is None:
        if not front_end.speakers:
            raise InvalidInput(
                "prompt_speech_path", None, "texts without a reference: the checkpoint has no speakers"
            )
        return next(iter(front_end.speakers.values()))
    with watch("audio_processing"):
        if isinstance(reference.audio, Path):
            audio = read_audio(reference.audio)
        else:
            audio = Audio(np.asarray(reference.audio[0], np.float32), reference.audio[1])
    with watch("speech_tokenization"):
        return front_end.make_voice(audio, reference.text)


def cut(
    options: argparse.Namespace, utterance: str, text: str, voice: Voice, front_end: FrontEnd
) -> list[TextSegment]:
    """The segments of an utterance, with the seeds that a Synthesizer would use."""
    seed = options.seed + copy_number(options, utterance)
    return [
        TextSegment(
            utterance,
            voice,
            prompt,
            sampling(options, derived_seed(seed, "sampling", segment)),
            derived_seed(seed, "noise", segment),
        )
        for segment, prompt in enumerate(front_end.prompts(text, voice))
    ]


def copy_number(options: argparse.Namespace, utterance: str) -> int:
    """0 for a text itself."""
    if options.copies == 1:
        return 0
    number = utterance.rpartition(COPY)[2]
    return int(number) if COPY in utterance and number.isdigit() else 0


def sampling(options: argparse.Namespace, seed: int) -> SamplingOptions:
    return SamplingOptions(
        strategy=options.sampling_strategy,
        top_k=options.top_k,
        top_p=options.top_p,
        temperature=options.temperature,
        repetition_penalty=options.repetition_penalty,
        seed=seed,
    )


def save(folder: Path, rate: int, segments: Sequence[TextSegment], waves: Sequence[Tensor]) -> int:
    """One wav file per utterance; returns the number of samples."""
    parts: defaultdict[str, list[Tensor]] = defaultdict(list)
    for segment, wave in zip(segments, waves, strict=True):
        parts[segment.utterance].append(wave)
    for name, of_name in parts.items():
        with audio_writer(folder / f"{name}.wav", rate) as write:
            for wave in of_name:
                write(wave.numpy())
    return sum(len(wave) for wave in waves)


def make_log(
    options: argparse.Namespace, seconds: dict[str, float], speech: Sequence[Speech], audio_s: float
) -> dict[str, Any]:
    """Times under CosyVoice's names, then figures that follow from them."""
    frontend_s = sum(
        seconds[name] for name in ("audio_processing", "speech_tokenization", "text_tokenization")
    )
    tokens = sum(len(segment.tokens) for segment in speech)
    settings = {
        name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()
    }
    return {
        "args": settings,
        "data_load_time_seconds": frontend_s,
        "audio_processing_time_in_collator_seconds": seconds["audio_processing"],
        "speech_tokenization_time_in_collator_seconds": seconds["speech_tokenization"],
        "text_tokenization_time_in_collator_seconds": seconds["text_tokenization"],
        "llm_time_seconds": seconds["llm"],
        "llm_post_processing_time_seconds": 0.0,
        "token2wav_time_seconds": seconds["token2wav"],
        "audio_save_time_seconds": seconds["audio_save"],
        "total_audio_duration_seconds": audio_s,
        "pipeline_time_seconds": seconds["pipeline"],
        "speech_tokens": tokens,
        "speech_tokens_per_second": tokens / seconds["llm"],
        "finish_reasons": dict(Counter(segment.finish_reason.value for segment in speech)),
        "llm_rtf": seconds["llm"] / audio_s,
        "token2wav_rtf": seconds["token2wav"] / audio_s,
        "llm_and_token2wav_rtf": (seconds["llm"] + seconds["token2wav"]) / audio_s,
        "pipeline_rtf": seconds["pipeline"] / audio_s,
        **provenance(),
    }


def print_summary(log: dict[str, Any], path: Path) -> None:
    audio_s, wall_s = log["total_audio_duration_seconds"], log["pipeline_time_seconds"]
    print(f"{audio_s:.1f} s of speech in {wall_s:.1f} s; all figures are in {path}")
    for name, label in (("llm", "speech LM"), ("token2wav", "token2wav"), ("pipeline", "everything")):
        print(f"  {label:10} {log[f'{name}_time_seconds']:8.2f} s, real-time factor {log[f'{name}_rtf']:.4f}")


if __name__ == "__main__":
    sys.exit(main())
