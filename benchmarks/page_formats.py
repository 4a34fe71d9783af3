#!/usr/bin/env python3
"""What formats of token2wav's pages on a CPU lose and take: mels, memory, and time of the flow.

    python benchmarks/page_formats.py --sentences 8

The demo voice's own speech tokens of held-out sentences, block by block as they are streamed, on ONNX Runtime
with one thread; steps and weights as published and as in deploy/cpu_fast.toml. Distance is the mean of the
absolute differences of log-mels, to pages in float32 and to 100 Euler steps in float32.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.checkpoint import load_config
from cosyvoice_runtime.onnx_cpu.flow import OnnxFlow, OnnxFlowStream
from cosyvoice_runtime.onnx_cpu.wave_export import export_wave
from cosyvoice_runtime.onnx_cpu.wave_files import wave_directory
from cosyvoice_runtime.onnx_cpu.wave_graphs import EstimatorFormats
from cosyvoice_runtime.pipeline import Synthesizer
from cosyvoice_runtime.wave.prompt import FlowPrompt
from cosyvoice_runtime.wave.solvers import ADAMS_BASHFORTH, EULER
from flow_steps import DEMO_VOICE, spoken

Said = tuple[FlowPrompt, list[int]]
FORMATS = ("float32", "float16", "float8")
WAYS = ((EULER, 10, "float32"), (ADAMS_BASHFORTH, 7, "int8"))
PAGES, TRUTH = 64, 100


class Measured(NamedTuple):
    """Mels of all sentences, MiB of a page, and CPU seconds for a second of speech."""

    mels: list[Floats]
    page_mib: float
    cpu_s: float

    @classmethod
    def of(cls, checkpoint: Path, said: Sequence[Said], way: tuple[str, int, str], pages: str) -> Measured:
        solver, steps, weights = way
        config = load_config(checkpoint).flow
        with tempfile.TemporaryDirectory() as folder:
            export_wave(checkpoint, Path(folder), EstimatorFormats(weights, pages))
            flow = OnnxFlow(config, wave_directory(Path(folder)), steps, 1, solver)
        stream = OnnxFlowStream(flow, PAGES)
        speak(stream, *said[0])
        begun = time.process_time()
        mels = [speak(stream, *each) for each in said]
        seconds = sum(len(tokens) for _, tokens in said) / config.token_rate
        return cls(mels, stream.pool.page_bytes / 2**20, (time.process_time() - begun) / seconds)

    def distance(self, other: Measured) -> tuple[float, float]:
        """Mean and largest."""
        pairs = zip(self.mels, other.mels, strict=True)
        apart = np.concatenate([np.abs(mine - theirs).ravel() for mine, theirs in pairs])
        return float(apart.mean()), float(apart.max())


def speak(stream: OnnxFlowStream, prompt: FlowPrompt, tokens: Sequence[int]) -> Floats:
    block, state, mels = stream.flow.config.encoder.chunk_tokens, stream.open(prompt), []
    for start in range(0, len(tokens), block):
        state.push(tokens[start : start + block], start + block >= len(tokens))
        mels += stream.advance([state])
    stream.close(state)
    return stream.joined(mels)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", type=Path, default=DEMO_VOICE)
    parser.add_argument("--sentences", type=int, default=8)
    options = parser.parse_args()
    said = list(spoken(Synthesizer.from_checkpoint(options.checkpoint), options.sentences))
    truth = Measured.of(options.checkpoint, said, (EULER, TRUTH, "float32"), "float32")
    print("| way | pages | MiB | mean, largest to float32 | mean to 100 steps | CPU s |")
    print("|---|---|---|---|---|---|")
    for way in WAYS:
        plain = None
        for pages in FORMATS:
            measured = Measured.of(options.checkpoint, said, way, pages)
            plain = plain or measured
            (mean, most), (error, _) = measured.distance(plain), measured.distance(truth)
            print(
                f"| {' '.join(map(str, way))} | {pages} | {measured.page_mib:.2f} | {mean:.1e}, {most:.1e} "
                f"| {error:.4f} | {measured.cpu_s:.3f} |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
