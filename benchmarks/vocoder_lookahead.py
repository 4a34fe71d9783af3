"""Error of streaming with a short lookahead, relative to the whole utterance.

    python benchmarks/vocoder_lookahead.py [--weights hift.safetensors] [--chunk 20] [--seeds 3]

Without weights, the networks are random (published kernels, fewer channels). The kernels alone fix where the
error reaches rounding, the weights how fast it gets there.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file

from cosyvoice_runtime.checkpoint.making.architecture import TINY
from cosyvoice_runtime.checkpoint.making.random_tensors import random_tensors
from cosyvoice_runtime.vocoder import HiFT, change_speed, context, open_state, stream

FRAMES = 160


def main() -> None:
    arguments = parse()
    for name, hift, level in networks(arguments):
        mel = speech_like_mel(level)
        whole = hift(mel[None])[0]
        print(f"{name}: waveform rms {whole.square().mean().sqrt():.3f}, chunks of {arguments.chunk} frames")
        print(f"{'lookahead':>10} {'max':>9} {'rms':>9}   relative to the waveform's max and rms")
        for lookahead in range(context(hift.config).lookahead + 1):
            largest, rms = error(streamed(hift, mel, lookahead, arguments.chunk), whole)
            print(f"{lookahead:>10} {largest:9.1e} {rms:9.1e}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weights", type=Path, help="safetensors of a network with the sizes of its tensors")
    parser.add_argument("--mel-level", type=float, default=-6.0, help="mean log-mel these weights expect")
    parser.add_argument("--chunk", type=int, default=20, help="mel frames per chunk")
    parser.add_argument("--seeds", type=int, default=3, help="random networks to measure")
    return parser.parse_args()


def networks(arguments: argparse.Namespace) -> Iterator[tuple[str, HiFT, float]]:
    """Name, network and mean log-mel. float64 decoders, so that what is seen is no rounding."""
    if arguments.weights:
        yield str(arguments.weights), sized_network(load_file(arguments.weights)), arguments.mel_level
        return
    for seed in range(arguments.seeds):
        tensors = dict(random_tensors("hift", TINY, seed))
        yield f"random {seed}", sized_network(tensors), -6.0


def sized_network(tensors: dict[str, torch.Tensor]) -> HiFT:
    config = replace(
        TINY.vocoder,
        base_channels=len(tensors["conv_pre.bias"]),
        f0_channels=len(tensors["f0_predictor.condnet.0.bias"]),
    )
    return HiFT.from_tensors(config, tensors, dtype=torch.float64)


def speech_like_mel(level: float) -> torch.Tensor:
    """[80, FRAMES], neighbouring frames correlated as in speech."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.randn(1, 80, FRAMES // 2, generator=generator)
    return 2 * change_speed(coarse, 0.5)[0] + level


def streamed(hift: HiFT, mel: torch.Tensor, lookahead: int, chunk: int) -> torch.Tensor:
    state = open_state(hift.config, lookahead=lookahead)
    parts = mel.split(chunk, dim=1)
    waves = [stream(hift, [state], [part], [part is parts[-1]])[0] for part in parts]
    return torch.cat(waves)


def error(found: torch.Tensor, whole: torch.Tensor) -> tuple[float, float]:
    difference = found - whole
    largest = (difference.abs().max() / whole.abs().max()).item()
    return largest, (difference.square().mean() / whole.square().mean()).sqrt().item()


if __name__ == "__main__":
    main()
