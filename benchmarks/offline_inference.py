#!/usr/bin/env python3
"""Speak a set of texts in one process, without a server: all speech tokens first, then all audio, in batches.

    python benchmarks/offline_inference.py --output-dir out --token2wav-path CosyVoice2-0.5B \\
        --backend torch --batch-size 16 --token2wav-batch-size 16 --manifest set.txt

Every text becomes a wav file; log.txt gets the times under the names that CosyVoice's own script uses, and
what follows from them. Without --manifest or --split-name the built-in sentences are spoken, with the
--prompt-speech-path or the checkpoint's first speaker.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cosyvoice_client.writer import audio_writer
from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.audio.read import read_audio
from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput
from cosyvoice_runtime.flow.stream import FlowStream
from cosyvoice_runtime.lm import SamplingOptions
from cosyvoice_runtime.pipeline import SpeechRequest, Synthesizer
from cosyvoice_runtime.pipeline.flow_prompt import flow_prompt
from cosyvoice_runtime.pipeline.request import derived_seed, lm_prompts
from cosyvoice_runtime.pipeline.token2wav import Token2Wav
from cosyvoice_runtime.voice import Voice
from measuring.engines import Engine, EngineOptions, Job, Speech, check_backend, make_engine
from measuring.machine import provenance
from measuring.progress import Progress
from measuring.stopwatch import Stopwatch
from measuring.workload import Utterance, VoiceReference, WorkloadError, built_in, read_manifest, read_split

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
KEPT_PAGES = 0
"""A whole utterance is one chunk, so there is no earlier work to keep."""


@dataclass(frozen=True)
class TextSegment:
    """A stretch of an utterance's text, and what it takes to speak it."""

    utterance: str
    voice: Voice
    job: Job
    noise_seed: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = parse(arguments)
    torch.set_num_threads(options.threads)
    # Without pages every utterance is "recomputed": that is the intention here and no reason to warn.
    logging.getLogger("cosyvoice_runtime.flow.stream").setLevel(logging.ERROR)
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
    parser.add_argument("--token2wav-path", "--checkpoint", type=Path, required=True, help="CosyVoice2-0.5B")
    parser.add_argument(
        "--llm-model-name-or-path",
        type=Path,
        help="a speech LM of its own; default: that of --token2wav-path",
    )
    parser.add_argument("--backend", default="torch", help="what runs the speech LM (%(default)s)")
    parser.add_argument("--batch-size", type=positive, default=1, help="texts decoded at a time")
    parser.add_argument(
        "--token2wav-batch-size", type=positive, default=1, help="texts made audible at a time"
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
    parser.add_argument("--runs", type=positive, default=1, help="the last one is logged")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (%(default)s)")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="of speech LM and flow")
    parser.add_argument("--threads", type=positive, default=1, help="CPU threads (%(default)s)")
    return parser.parse_args(arguments)


def positive(text: str) -> int:
    """A whole number of at least 1."""
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def run(options: argparse.Namespace) -> None:
    """Load, speak everything ``--runs`` times, write wav files and the log."""
    check_backend(options.backend)
    utterances = read_utterances(options)
    dtype = DTYPES[options.dtype]
    synthesizer = Synthesizer.from_checkpoint(
        options.token2wav_path,
        device=options.device,
        lm_dtype=dtype,
        flow_dtype=dtype,
        threads=options.threads,
    )
    engine_options = EngineOptions(options.token2wav_path, options.llm_model_name_or_path, options.batch_size)
    engine = make_engine(options.backend, synthesizer.lm, engine_options)
    token2wav = Token2Wav(
        FlowStream(synthesizer.token2wav.flow.flow, KEPT_PAGES), synthesizer.token2wav.vocoder
    )
    options.output_dir.mkdir(parents=True, exist_ok=True)
    for number in range(1, options.runs + 1):
        print(f"run {number} of {options.runs}, {len(utterances)} texts", file=sys.stderr)
        log = speak_all(options, utterances, engine, synthesizer, token2wav)
    path = options.output_dir / "log.txt"
    path.write_text(json.dumps(log, ensure_ascii=False, indent=4), encoding="utf-8")
    print_summary(log, path)


def read_utterances(options: argparse.Namespace) -> list[Utterance]:
    """What is to be spoken."""
    reference = None
    if options.prompt_speech_path is not None:
        reference = VoiceReference(options.prompt_speech_path, options.prompt_text)
    if options.manifest is not None:
        utterances = read_manifest(options.manifest)
    elif options.split_name is not None:
        utterances = read_split(options.split_name)
    else:
        return built_in(reference)
    if reference is None:
        return utterances
    return [Utterance(utterance.name, utterance.text, reference) for utterance in utterances]


def speak_all(
    options: argparse.Namespace,
    utterances: list[Utterance],
    engine: Engine,
    synthesizer: Synthesizer,
    token2wav: Token2Wav,
) -> dict[str, Any]:
    """One run; returns its log."""
    watch = Stopwatch()
    with watch("pipeline"):
        segments = prepare(options, utterances, synthesizer, watch)
        with watch("llm"):
            progress = Progress("speech LM", len(segments))
            speech = engine.generate([segment.job for segment in segments], progress.step)
            progress.end()
        waves = vocode(segments, speech, token2wav, options.token2wav_batch_size, watch)
        with watch("audio_save"):
            samples = save(options.output_dir, synthesizer.sample_rate, segments, waves)
    return make_log(options, watch.seconds, speech, samples / synthesizer.sample_rate)


def prepare(
    options: argparse.Namespace, utterances: list[Utterance], synthesizer: Synthesizer, watch: Stopwatch
) -> list[TextSegment]:
    """Voices, each made once, and prompts of all texts."""
    voices: dict[object, Voice] = {}
    segments = []
    for utterance in utterances:
        reference = utterance.reference
        key = None if reference is None else (str(reference.audio), reference.text)
        if key not in voices:
            voices[key] = make_voice(reference, synthesizer, watch)
        with watch("text_tokenization"):
            segments += cut(options, utterance, voices[key], synthesizer)
    return segments


def make_voice(reference: VoiceReference | None, synthesizer: Synthesizer, watch: Stopwatch) -> Voice:
    if reference is None:
        if not synthesizer.speakers:
            raise InvalidInput(
                "prompt_speech_path", None, "texts without a reference: the checkpoint has no speakers"
            )
        return next(iter(synthesizer.speakers.values()))
    with watch("audio_processing"):
        if isinstance(reference.audio, Path):
            audio = read_audio(reference.audio)
        else:
            audio = Audio(torch.as_tensor(reference.audio[0]).float(), reference.audio[1])
    with watch("speech_tokenization"):
        return synthesizer.voice(audio, reference.text)


def cut(
    options: argparse.Namespace, utterance: Utterance, voice: Voice, synthesizer: Synthesizer
) -> list[TextSegment]:
    """The segments of an utterance, with the seeds that a Synthesizer would use."""
    request = SpeechRequest(utterance.text, voice)
    prompts = lm_prompts(request, synthesizer.front_end, synthesizer.tokenizer)
    return [
        TextSegment(
            utterance.name,
            voice,
            Job(prompt, sampling(options, derived_seed(options.seed, "sampling", segment))),
            derived_seed(options.seed, "noise", segment),
        )
        for segment, prompt in enumerate(prompts)
    ]


def sampling(options: argparse.Namespace, seed: int) -> SamplingOptions:
    return SamplingOptions(
        strategy=options.sampling_strategy,
        top_k=options.top_k,
        top_p=options.top_p,
        temperature=options.temperature,
        repetition_penalty=options.repetition_penalty,
        seed=seed,
    )


def vocode(
    segments: list[TextSegment],
    speech: list[Speech],
    token2wav: Token2Wav,
    batch_size: int,
    watch: Stopwatch,
) -> list[torch.Tensor]:
    """Waveforms in the order of the segments; those of similar length share a batch, so little is padded."""
    order = sorted(range(len(segments)), key=lambda number: len(speech[number].tokens))
    waves: dict[int, torch.Tensor] = {}
    progress = Progress("token2wav", len(segments))
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        with watch("token2wav"):
            states = []
            for number in batch:
                prompt = flow_prompt(segments[number].voice)
                states.append(token2wav.open(prompt, segments[number].noise_seed))
                token2wav.push(states[-1], speech[number].tokens, last=True)
            audible = [wave.cpu() for wave in token2wav.advance(states)]
        for number, state, wave in zip(batch, states, audible, strict=True):
            token2wav.close(state)
            waves[number] = wave
            progress.step()
    progress.end()
    return [waves[number] for number in range(len(segments))]


def save(folder: Path, rate: int, segments: list[TextSegment], waves: list[torch.Tensor]) -> int:
    """One wav file per utterance; returns the number of samples."""
    parts: defaultdict[str, list[torch.Tensor]] = defaultdict(list)
    for segment, wave in zip(segments, waves, strict=True):
        parts[segment.utterance].append(wave)
    for name, of_name in parts.items():
        with audio_writer(folder / f"{name}.wav", rate) as write:
            for wave in of_name:
                write(wave.cpu().numpy())
    return sum(len(wave) for wave in waves)


def make_log(
    options: argparse.Namespace, seconds: dict[str, float], speech: list[Speech], audio_s: float
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
