#!/usr/bin/env python3
"""token2wav of one checkpoint on a CPU, on torch and on ONNX Runtime: time of its chunks, and memory.

    python benchmarks/token2wav_runtimes.py
    python benchmarks/token2wav_runtimes.py --checkpoint checkpoints/CosyVoice2-0.5B --rows 1 --rounds 2

Each runtime has a process of its own, for thread pools side by side in one distort each other, and the
processes are asked in turn, so that whatever else the machine does meets all alike; figures are medians, and
least, over the rounds. Utterances of random tokens come in chunks of a second after a first one of 28
tokens, in a voice whose prompt of 3 s was computed before.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from cosyvoice_runtime.onnx_cpu.wave_export import export_wave
from cosyvoice_runtime.onnx_cpu.wave_graphs import EstimatorFormats
from cosyvoice_runtime.settings import Machine, Token2WavSettings
from cosyvoice_runtime.wave.prompt import FlowPrompt
from cosyvoice_runtime.wave.token2wav import Token2Wav

DEMO_VOICE = Path(__file__).resolve().parent.parent / "demo_voice"
RUNTIMES = ("torch", "onnx")
CHUNK, FIRST, PROMPT = 25, 28, 75
"""Speech tokens."""


@dataclass(frozen=True)
class Spoken:
    """Milliseconds of the first and of later chunks, of which the vocoder's, and the waveforms."""

    first: float
    later: float
    vocoder: float
    waves: list[np.ndarray[Any, Any]]


class TimedVocoder:
    """Adds up the time of a vocoder."""

    def __init__(self, token2wav: Token2Wav) -> None:
        self.seconds = 0.0
        self._advance = token2wav.vocoder.advance
        token2wav.vocoder.advance = self  # type: ignore[method-assign]

    def __call__(self, *arguments: Any) -> Any:
        begun = time.perf_counter()
        try:
            return self._advance(*arguments)
        finally:
            self.seconds += time.perf_counter() - begun


def load(settings: Token2WavSettings) -> Token2Wav:
    if settings.backend == "onnx":
        from cosyvoice_runtime.serving.token2wav import onnx_runtime

        return onnx_runtime.load_token2wav(settings)
    import torch

    from cosyvoice_runtime.serving.token2wav import torch_runtime

    torch.set_num_threads(settings.threads)
    return torch_runtime.load_token2wav(settings)


def speak(token2wav: Token2Wav, timed: TimedVocoder, rows: int, seconds: int) -> Spoken:
    config, random = token2wav.flow.flow.config, np.random.default_rng(1)
    prompt = FlowPrompt(
        random.integers(0, config.token_vocab_size, PROMPT),
        (2 * random.standard_normal((config.frames_per_token * PROMPT, config.mel_bins)) - 6).astype("f4"),
        random.standard_normal(config.speaker_dim).astype("f4"),
    )
    prefix = token2wav.flow.prefix(prompt)
    states = [token2wav.open(prefix, noise_seed=row) for row in range(rows)]
    tokens = random.integers(0, config.token_vocab_size, (rows, CHUNK * seconds)).tolist()
    edges = [0, *range(FIRST, CHUNK * seconds, CHUNK), CHUNK * seconds]
    waves: list[list[np.ndarray[Any, Any]]] = [[] for _ in states]
    times, of_vocoder = [], []
    for start, end in itertools.pairwise(edges):
        begun, before = time.perf_counter(), timed.seconds
        for state, row in zip(states, tokens, strict=True):
            token2wav.push(state, row[start:end], last=end == edges[-1])
        for kept, wave in zip(waves, token2wav.advance(states), strict=True):
            kept.append(wave)
        times.append(1e3 * (time.perf_counter() - begun))
        of_vocoder.append(1e3 * (timed.seconds - before))
    for state in states:
        token2wav.close(state)
    token2wav.flow.close(prefix)
    joined = [np.concatenate(row) for row in waves]
    return Spoken(times[0], median(times[1:-1]), median(of_vocoder[1:-1]), joined)


def serve(settings: Token2WavSettings, seconds: int, asked: Connection) -> None:
    """Speak as often as rows are asked for; None ends it and asks for the most memory, in MiB."""
    token2wav = load(settings)
    timed = TimedVocoder(token2wav)
    while (rows := asked.recv()) is not None:
        asked.send(speak(token2wav, timed, rows, seconds))
    asked.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", type=Path, default=DEMO_VOICE)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4], help="utterances side by side")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=int, default=8, help="of an utterance")
    parser.add_argument("--ode-steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    with tempfile.TemporaryDirectory() as directory:
        begun = time.perf_counter()
        export_wave(options.checkpoint, Path(directory), EstimatorFormats())
        print(f"graphs written in {time.perf_counter() - begun:.1f} s")
        print("| threads | runtime | rows | first ms (least) | later ms (least) | its vocoder ms | MiB |")
        print("|---|---|---|---|---|---|---|")
        for threads in options.threads:
            compare(options, Path(directory), threads)
    return 0


def compare(options: argparse.Namespace, directory: Path, threads: int) -> None:
    context = multiprocessing.get_context("spawn")
    pipes, processes = {}, []
    for backend in RUNTIMES:
        settings = Token2WavSettings(
            checkpoint_dir=options.checkpoint, backend=backend, backend_dir=directory, device="cpu",
            threads=threads, ode_steps=options.ode_steps, max_flow_pages=64,
        ).resolved(Machine(cores=threads, gpu=False))  # fmt: skip
        pipes[backend], theirs = context.Pipe()
        processes.append(context.Process(target=serve, args=(settings, options.seconds, theirs)))
        processes[-1].start()
    runs: dict[tuple[str, int], list[Spoken]] = {}
    for number in range(options.rounds + 1):
        for rows in options.rows:
            for backend, pipe in pipes.items():
                pipe.send(rows)
                run = pipe.recv()
                if number:  # the first is to warm up
                    runs.setdefault((backend, rows), []).append(run)
    memory = {}
    for backend, pipe in pipes.items():
        pipe.send(None)
        memory[backend] = pipe.recv()
    for process in processes:
        process.join()
    for (backend, rows), found in runs.items():
        print(row_of(threads, backend, rows, found, memory[backend]), flush=True)
    for rows in options.rows:
        torchs, ours = (runs[backend, rows][0].waves for backend in RUNTIMES)
        most = max(np.abs(a - b).max() for a, b in zip(torchs, ours, strict=True))
        ratio = median(
            t.later / o.later for t, o in zip(runs["torch", rows], runs["onnx", rows], strict=True)
        )
        print(f"{threads} threads, {rows} rows: onnx {ratio:.2f} times as fast, waves differ by {most:.1e}")


def row_of(threads: int, backend: str, rows: int, found: Sequence[Spoken], memory: float) -> str:
    cells = [str(threads), backend, str(rows)]
    for name in ("first", "later"):
        values = [getattr(run, name) for run in found]
        cells.append(f"{median(values):.0f} ({min(values):.0f})")
    cells += [f"{median(run.vocoder for run in found):.0f}", f"{memory:.0f}"]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
