#!/usr/bin/env python3
"""Whole utterances on a CPU without a server: first audio, real-time factor, audio a minute, memory.

    python benchmarks/cpu_utterances.py
    python benchmarks/cpu_utterances.py --size full --variant onnx:engine=onnx,backend=onnx --seconds 5
    python benchmarks/cpu_utterances.py --variant torch:engine=torch,backend=torch \\
        --variant six:engine=onnx,token2wav.backend=onnx,token2wav.ode_steps=6 --utterances 1,4

A variant is a name and settings, with commas between them; engines, batches and chunks are the server's, for
its schedulers do the work. Each variant is a process of its own, and they are asked in turn. A voice of 3 s
is known before. Every utterance has as many tokens as --seconds needs, so that all variants do the same
work, and each listener plays what has come. Figures are medians of the rounds, and memory is the most of the
process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from client_server import numbers
from cosyvoice_runtime.checkpoint import load_config
from cosyvoice_runtime.checkpoint.config import FlowConfig
from cosyvoice_runtime.lm import Prompt, SamplingOptions
from cosyvoice_runtime.pipeline import SpeechRequest
from cosyvoice_runtime.pipeline.hop import HopPolicy
from cosyvoice_runtime.pipeline.utterance import Playback, speak
from cosyvoice_runtime.settings import Machine, Settings
from cosyvoice_runtime.settings.machine import usable_cores
from cosyvoice_runtime.voice import Voice
from cpu import DEMO_VOICE, Variant
from measuring.machine import provenance
from measuring.report import table

PROMPT_S, TEXT_RATE = 3, 4
"""Of the voice; text tokens of a second."""
DEFAULT = [
    Variant("torch", ("tensorrt_llm.engine=torch", "token2wav.backend=torch")),
    Variant("onnx", ("tensorrt_llm.engine=onnx", "token2wav.backend=onnx")),
    Variant(
        "int8", ("tensorrt_llm.engine=onnx", "token2wav.backend=onnx", "tensorrt_llm.weight_format=int8")
    ),
]


@dataclass(frozen=True)
class Heard:
    """What a listener met: seconds to the first chunk and to the end, seconds of audio, pauses."""

    first_s: float
    total_s: float
    audio_s: float
    underruns: int


@dataclass(frozen=True)
class Level:
    """Utterances at once: seconds of wall time and of all cores together."""

    wall_s: float
    cpu_s: float
    heard: list[Heard]

    @property
    def figures(self) -> dict[str, float]:
        audio_s = sum(each.audio_s for each in self.heard)
        return {
            "first audio ms": 1e3 * median(each.first_s for each in self.heard),
            "RTF": median(each.total_s / each.audio_s for each in self.heard),
            "audio s a minute": 60 * audio_s / self.wall_s,
            "CPU s for a second of audio": self.cpu_s / audio_s,
            "continuous %": 100 * sum(not each.underruns for each in self.heard) / len(self.heard),
        }


class Speakers:
    """One variant's networks at work."""

    def __init__(self, settings: Settings, seconds: float) -> None:
        from measuring.streamed_stages import StreamedStages

        config = load_config(settings.token2wav.checkpoint_dir)
        self._stages = StreamedStages(settings)
        self._hop = HopPolicy.of(config.flow, settings.cosyvoice2)
        self._voice = random_voice(config.flow)
        self._rate = config.vocoder.sample_rate
        count = int(config.flow.token_rate * seconds)
        self._sampling = SamplingOptions(min_tokens=count, max_tokens=count, runaway_span=0)
        self._prompt = Prompt(range(int(TEXT_RATE * seconds)), (), self._voice.speech_tokens.tolist())

    async def speak(self, utterances: int) -> Level:
        begun, used = time.perf_counter(), time.process_time()
        heard = await asyncio.gather(*(self._listen(number) for number in range(utterances)))
        return Level(time.perf_counter() - begun, time.process_time() - used, heard)

    async def _listen(self, seed: int) -> Heard:
        begun, first_s = time.perf_counter(), 0.0
        played = Playback(time.perf_counter)
        request = SpeechRequest("", self._voice, seed=seed, sampling=self._sampling)
        spoken = speak(request, [self._prompt], self._stages, self._hop, self._rate, lambda: played.cushion_s)
        async for chunk in spoken:
            first_s = first_s or time.perf_counter() - begun
            played.sent(len(chunk.samples) / self._rate)
        return Heard(first_s, time.perf_counter() - begun, played.seconds, played.underruns)

    def close(self) -> None:
        self._stages.close()


def random_voice(flow: FlowConfig) -> Voice:
    """Of random speech tokens and mel."""
    random, tokens = np.random.default_rng(0), PROMPT_S * flow.token_rate
    mel = 2 * random.standard_normal((flow.frames(tokens), flow.mel_bins)) - 6
    return Voice(
        "0" * 64,
        "",
        random.integers(0, flow.token_vocab_size, tokens).astype(np.int32),
        mel.astype(np.float32),
        random.standard_normal(flow.speaker_dim).astype(np.float32),
        "random",
    )


def serve(settings: Settings, seconds: float, asked: Connection) -> None:
    """Speak as many at once as are asked for; None ends it and asks for the most memory, in MiB."""
    torch_threads(settings)
    speakers = Speakers(settings, seconds)
    asked.send(None)
    with closing(asyncio.new_event_loop()) as loop, closing(speakers):
        while (utterances := asked.recv()) is not None:
            asked.send(loop.run_until_complete(speakers.speak(utterances)))
    asked.send(peak_mib())


def torch_threads(settings: Settings) -> None:
    """As the server's processes set them; without torch nothing is to be set."""
    if settings.tensorrt_llm.engine == "torch" or settings.token2wav.backend == "torch":
        import torch

        torch.set_num_threads(settings.token2wav.threads)


def peak_mib() -> float:
    """Most memory of this process so far, what is mapped from files included."""
    status = Path("/proc/self/status").read_text().splitlines()
    [peak] = [line.split()[1] for line in status if line.startswith("VmHWM:")]
    return int(peak) / 2**10


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", type=Path, default=DEMO_VOICE, help="default: demo_voice/")
    parser.add_argument("--size", choices=("tiny", "full"), help="make one with random weights instead")
    parser.add_argument("--variant", type=Variant.read, action="append", metavar="NAME:KEY=VALUE,...")
    parser.add_argument("--utterances", type=numbers(int), default=[1, 4], help="at once (1,4)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of an utterance (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--alone", action="store_true", help="end each variant before the next one begins")
    parser.add_argument("--files", type=Path, help="keep checkpoint and networks there, for further runs")
    parser.add_argument("--json", type=Path, help="file for the figures")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    variants = options.variant or DEFAULT
    with ExitStack() as stack:
        made = options.files or stack.enter_context(tempfile.TemporaryDirectory(prefix="utterances-"))
        folder = Path(made).absolute()
        prepared = {one.name: prepare(one, checkpoint_of(options, folder), folder) for one in variants}
        groups = [[one.name] for one in variants] if options.alone else [list(prepared)]
        figures: dict[str, Any] = {}
        for group in groups:
            figures |= measure({one: prepared[one] for one in group}, options)
    print(markdown(figures, options))
    if options.json:
        report = {"figures": figures, **provenance()}
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


def checkpoint_of(options: argparse.Namespace, folder: Path) -> Path:
    if options.size is None:
        given: Path = options.checkpoint.absolute()
        return given
    from cosyvoice_runtime.checkpoint.making import make_checkpoint

    made = folder / "checkpoint"
    return made if made.exists() else make_checkpoint(made, options.size)


def prepare(variant: Variant, checkpoint: Path, folder: Path) -> Settings:
    """Settings of a variant, whose files are there."""
    machine = Machine(usable_cores(), gpu=False)
    settings = Settings.read([f"checkpoint_dir={checkpoint}", *variant.settings])
    lm_files = folder / f"lm-{settings.tensorrt_llm.weight_format}"
    networks = folder / f"networks-{settings.token2wav.weight_format}-{settings.token2wav.page_format}"
    settings = settings.with_texts(
        {"tensorrt_llm.engine_dir": str(lm_files), "token2wav.backend_dir": str(networks)}
    ).resolved(machine)
    if settings.tensorrt_llm.engine == "onnx":
        from cosyvoice_runtime.onnx_cpu.lm_export import export_lm

        export_lm(checkpoint, lm_files, settings.tensorrt_llm.weight_format)
    if settings.token2wav.backend == "onnx":
        from cosyvoice_runtime.onnx_cpu.wave_export import export_wave
        from cosyvoice_runtime.onnx_cpu.wave_graphs import EstimatorFormats

        formats = EstimatorFormats(settings.token2wav.weight_format, settings.token2wav.page_format)
        export_wave(checkpoint, networks, formats)
    return settings


def measure(prepared: dict[str, Settings], options: argparse.Namespace) -> dict[str, Any]:
    """Medians by variant."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = {}, []
    for name, settings in prepared.items():
        pipes[name], theirs = context.Pipe()
        processes.append(context.Process(target=serve, args=(settings, options.seconds, theirs)))
        processes[-1].start()
    for pipe in pipes.values():
        pipe.recv()
        ask(pipe, 1)
    runs: dict[str, dict[str, list[Level]]] = {name: {} for name in pipes}
    for number in range(options.rounds):
        for utterances in options.utterances:
            for name in list(pipes)[:: -1 if number % 2 else 1]:
                level = ask(pipes[name], utterances)
                print(
                    name,
                    utterances,
                    {key: round(value, 3) for key, value in level.figures.items()},
                    flush=True,
                )
                runs[name].setdefault(str(utterances), []).append(level)
    found = {name: {"levels": {count: medians(each) for count, each in runs[name].items()}} for name in pipes}
    for name, pipe in pipes.items():
        found[name] |= {"peak_mib": ask(pipe, None), "settings": prepared[name].model_dump(mode="json")}
    for process in processes:
        process.join()
    return found


def ask(pipe: Connection, utterances: int | None) -> Any:
    pipe.send(utterances)
    return pipe.recv()


def medians(levels: Sequence[Level]) -> dict[str, float]:
    return {key: median(level.figures[key] for level in levels) for key in levels[0].figures}


def markdown(figures: dict[str, Any], options: argparse.Namespace) -> str:
    counts = [str(count) for count in options.utterances]
    names = list(next(iter(figures.values()))["levels"][counts[0]])
    rows = [
        [f"{count} at once: {name}", *(f"{one['levels'][count][name]:.3g}" for one in figures.values())]
        for count in counts
        for name in names
    ]
    rows.append(["most memory, MiB", *(f"{one['peak_mib']:.0f}" for one in figures.values())])
    return table(("", *figures), rows)


if __name__ == "__main__":
    sys.exit(main())
