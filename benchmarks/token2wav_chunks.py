"""Time of token2wav's chunks on one device: kernel by kernel, in CUDA graphs, and with fused kernels in them.

Random weights, one process, no server. Utterances side by side take chunk after chunk of a steady length;
the voice's own chunks are computed before. What the ways give is compared too.

    python benchmarks/token2wav_chunks.py --size full --dtype float16 float32 --utterances 1 2 4 8
    python benchmarks/token2wav_chunks.py --family cosyvoice3 --size full --utterances 1 8 32
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.checkpoint.making.random_tensors import random_tensors
from cosyvoice_runtime.cuda_graphs import CudaGraphCapture
from cosyvoice_runtime.flow.flow import Flow
from cosyvoice_runtime.flow.graphed_calls import CallBuckets
from cosyvoice_runtime.flow.paged_call import PagedSolver
from cosyvoice_runtime.flow.stream import FlowStream
from cosyvoice_runtime.pipeline.flow_prompt import flow_prompt
from cosyvoice_runtime.serving.token2wav.torch_token2wav import TorchToken2Wav
from cosyvoice_runtime.vocoder import HiFT, HiFTStream
from measuring.sizes import FAMILIES, add_network
from stages import DTYPES, machine, random_voice

SECOND = 25
"""Speech tokens."""
WAYS = ("launched", "replayed", "fused")
FIRST = 28
"""Of the first chunk: one second and the flow's look-ahead."""


@dataclass(frozen=True)
class Result:
    """Milliseconds of the first and of a later chunk, and the waveforms."""

    first: float
    later: float
    waves: list[torch.Tensor]


def load(config: ModelConfig, dtype: str, device: str, pages: int, ode_steps: int) -> TorchToken2Wav:
    tensors = (dict(random_tensors(section, config, seed=0)) for section in ("flow", "hift"))
    flow = Flow.from_tensors(config.flow, next(tensors), device, DTYPES[dtype], ode_steps)
    vocoder = HiFT.from_tensors(config.vocoder, next(tensors), device, DTYPES[dtype])
    return TorchToken2Wav(FlowStream(flow, pages), HiFTStream(vocoder))


def speak(token2wav: TorchToken2Wav, utterances: int, prompt: int, chunk: int, seconds: int) -> Result:
    """Utterances of ``seconds`` seconds in chunks of ``chunk`` tokens."""
    config = token2wav.flow.flow.config
    prefix = token2wav.flow.prefix(flow_prompt(random_voice(config, prompt)))
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(
        config.token_vocab_size, (utterances, SECOND * seconds), generator=generator
    ).tolist()
    states = [token2wav.open(prefix, noise_seed=row) for row in range(utterances)]
    waves: list[list[torch.Tensor]] = [[] for _ in states]
    times = []
    for start, end in _cuts(SECOND * seconds, chunk):
        _wait(token2wav)
        begun = time.perf_counter()
        for state, row in zip(states, tokens, strict=True):
            token2wav.push(state, row[start:end], last=end == SECOND * seconds)
        spoken = [torch.from_numpy(wave) for wave in token2wav.advance(states)]
        times.append(1e3 * (time.perf_counter() - begun))
        for kept, wave in zip(waves, spoken, strict=True):
            kept.append(wave)
    for state in states:
        token2wav.close(state)
    token2wav.flow.close(prefix)
    return Result(times[0], statistics.median(times[1:-1]), [torch.cat(row) for row in waves])


def _cuts(count: int, chunk: int) -> list[tuple[int, int]]:
    edges = [0, *range(FIRST, count, chunk), count]
    return list(itertools.pairwise(edges))


def _wait(token2wav: TorchToken2Wav) -> None:
    if token2wav.torch_vocoder.device.type == "cuda":
        torch.cuda.synchronize()


def repeated(token2wav: TorchToken2Wav, repeats: int, *how: int) -> Result:
    """Medians over the repeats, after one to warm up."""
    speak(token2wav, *how)
    runs = [speak(token2wav, *how) for _ in range(repeats)]
    first, later = (statistics.median(getattr(run, name) for run in runs) for name in ("first", "later"))
    return Result(first, later, runs[-1].waves)


def difference(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> str:
    """Largest and root mean square difference of waveforms."""
    delta = torch.cat(list(some)) - torch.cat(list(others))
    return f"{delta.abs().max():.1e} / {delta.square().mean().sqrt():.1e}"


def row(way: str, dtype: str, utterances: int, chunk: int, result: Result, differs: str) -> str:
    rate = utterances * chunk / SECOND / (result.later / 1e3)
    return (
        f"| {way} | {dtype} | {utterances} | {chunk} | {result.first:.1f} | {result.later:.1f} | {rate:.1f} "
        f"| {differs} |"
    )


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_network(arguments, size="tiny")
    arguments.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    arguments.add_argument("--dtype", nargs="+", choices=DTYPES, default=["float16"])
    arguments.add_argument("--utterances", type=int, nargs="+", default=[1, 8])
    arguments.add_argument("--chunk-tokens", type=int, nargs="+", default=[25])
    arguments.add_argument("--prompt-tokens", type=int, default=75)
    arguments.add_argument("--seconds", type=int, default=10, help="of an utterance (default %(default)s)")
    arguments.add_argument("--ode-steps", type=int, default=10)
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="(default %(default)s)")
    return arguments


def main() -> None:
    options = parser().parse_args()
    if any(chunk % SECOND for chunk in options.chunk_tokens):
        sys.exit(f"--chunk-tokens: multiples of {SECOND}, which the flow computes at once")
    if SECOND * options.seconds < FIRST + 2 * max(options.chunk_tokens):
        sys.exit(f"--seconds: {options.seconds} s have no chunk between the first and the last")
    config, most = FAMILIES[options.family][options.size], max(options.utterances)
    pages = most * (options.seconds + 1) + options.prompt_tokens // SECOND + 1
    print(f"{machine(options.device)}; {options.family}, {options.size}")
    print(f"{options.prompt_tokens} prompt tokens, {options.seconds} s of speech")
    print("| way | dtype | utterances | tokens a chunk | first ms | later ms | audio s/s | difference |")
    print("|---|---|---|---|---|---|---|---|")
    for dtype in options.dtype:
        token2wav = load(config, dtype, options.device, pages, options.ode_steps)
        kinds = [
            (utterances, options.prompt_tokens, chunk, options.seconds)
            for utterances in options.utterances
            for chunk in options.chunk_tokens
        ]
        first: list[Result] = []
        for way in options.ways:
            if way != "launched" and options.device != "cuda":
                continue
            if way == "fused" and DTYPES[dtype] != torch.float16:
                continue
            if way != "launched":
                capture(token2wav, most, fused=way == "fused")
            results = [repeated(token2wav, options.repeats, *how) for how in kinds]
            first = first or results
            for how, result, other in zip(kinds, results, first, strict=True):
                differs = "" if first is results else difference(result.waves, other.waves)
                print(row(way, dtype, how[0], how[2], result, differs), flush=True)


def capture(token2wav: TorchToken2Wav, most: int, fused: bool) -> None:
    """Replay from now on, once fused always so; prints what capturing took."""
    solver: PagedSolver | None = None
    flow = token2wav.torch_flow.flow
    if fused:
        from cosyvoice_runtime.kernels.fused_decoder import FusedDecoder  # they need the package triton
        from cosyvoice_runtime.kernels.fused_encoder import FusedEncoder
        from cosyvoice_runtime.kernels.solvers import fused_solver

        solver = fused_solver(flow)
        if not flow.encodes_any_past:
            flow.paged_encoder = FusedEncoder.of(flow)
        hift = token2wav.torch_vocoder.hift
        hift.fuse(FusedDecoder.of(hift.decoder))
    begun = time.perf_counter()
    buckets = CallBuckets.up_to(most, any_past=fused, starts_too=flow.encodes_any_past)
    graphs = token2wav.capture(buckets, CudaGraphCapture(token2wav.torch_vocoder.device), solver)
    spent = time.perf_counter() - begun
    memory = torch.cuda.memory_reserved() / 2**20
    print(f"CUDA graphs of {graphs} calls in {spent:.1f} s, {memory:.0f} MiB reserved", file=sys.stderr)


if __name__ == "__main__":
    main()
