"""The vocoder of one second of speech for some utterances: plain modules and fused kernels, in CUDA graphs.

F0, source and decoder of windows of 86 mel frames, with random weights. The error is that of the decoder's
waveform against the same network in float32, ``|x - reference| / |reference|``.

    python benchmarks/fused_vocoder.py --utterances 1 4 8 16 32
    python benchmarks/fused_vocoder.py --family cosyvoice3 --utterances 1 8 32
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.checkpoint.making.random_tensors import random_tensors
from cosyvoice_runtime.kernels.fused_decoder import FusedDecoder
from cosyvoice_runtime.vocoder import HiFT
from cosyvoice_runtime.vocoder.rows import Rows
from cosyvoice_runtime.vocoder.windows import WindowInputs, compute_windows
from cosyvoice_runtime.wave.context import context
from measuring.replays import distance, milliseconds, replayed
from measuring.sizes import FAMILIES, add_network

SECOND = 50
"""Mel frames."""


def load(config: ModelConfig, dtype: torch.dtype) -> HiFT:
    return HiFT.from_tensors(config.vocoder, dict(random_tensors("hift", config, seed=0)), "cuda", dtype)


def width(hift: HiFT) -> int:
    """Frames of a window of a second."""
    around = context(hift.config)
    return around.left + SECOND + around.lookahead


def decoded(hift: HiFT, utterances: int) -> Tensor:
    generator, frames = torch.Generator().manual_seed(1), width(hift)
    mel = 2 * torch.randn(utterances, hift.config.mel_bins, frames, generator=generator) - 6
    source = torch.randn(utterances, hift.config.hop * frames, generator=generator).mul(0.1).tanh()
    rows = Rows.of([frames] * utterances, hift.device)
    wave: Tensor = hift.decoder(mel.to(hift.device), source.to(hift.device), rows)
    return wave


def window_ms(hift: HiFT, utterances: int, repeats: int) -> float:
    """Of a replay on the GPU."""
    inputs = WindowInputs(hift, utterances, width(hift))
    graph = replayed(lambda: compute_windows(hift, inputs, *inputs.rows()))
    return milliseconds(graph.replay, repeats)


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_network(arguments)
    arguments.add_argument("--utterances", type=int, nargs="+", default=[1, 4, 8, 16, 32])
    arguments.add_argument("--repeats", type=int, default=10)
    return arguments


@torch.no_grad()
def main() -> None:
    options = parser().parse_args()
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.allow_tf32 = False
    truth, plain, fused = (
        load(FAMILIES[options.family][options.size], dtype)
        for dtype in (torch.float32, torch.float16, torch.float16)
    )
    fused.fuse(FusedDecoder.of(fused.decoder))
    print("| utterances | plain ms | fused ms | error plain | error fused | repeatable |")
    print("|---|---|---|---|---|---|")
    for utterances in options.utterances:
        expected = decoded(truth, utterances)
        times = [window_ms(hift, utterances, options.repeats) for hift in (plain, fused)]
        errors = [distance(decoded(hift, utterances), expected) for hift in (plain, fused)]
        same = torch.equal(decoded(fused, utterances), decoded(fused, utterances))
        figures = [*(f"{time:.2f}" for time in times), *(f"{error:.1e}" for error in errors)]
        print(f"| {utterances} | {' | '.join(figures)} | {same} |", flush=True)


if __name__ == "__main__":
    main()
