"""Changes by half precision: each network in bfloat16 and float16 against itself in float32.

    python benchmarks/precision.py --size full --device cuda
    python benchmarks/precision.py --checkpoint demo_voice

Without a checkpoint, random weights of the true shapes: the figures show the arithmetic's error, not what a
listener hears. With one, `./run.sh check` compares it on the runtimes that are served.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from cosyvoice_runtime.check.comparison import decibels, divergence, same_best
from cosyvoice_runtime.checkpoint import Layout, load_config
from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.checkpoint.layout import Part
from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.flow.torch.graphed_calls import CallBuckets
from cosyvoice_runtime.flow.torch.stream import FlowStream
from cosyvoice_runtime.gpu.cuda_graphs import CudaGraphCapture
from cosyvoice_runtime.lm import Prompt
from cosyvoice_runtime.lm.torch.kv_cache import KVCache
from cosyvoice_runtime.lm.torch.network import SpeechLM
from cosyvoice_runtime.token2wav.token2wav import flow_prompt
from cosyvoice_runtime.vocoder.torch.hift import HiFT
from making.random_tensors import random_tensors
from measuring.sizes import FAMILIES, add_network
from stages import DTYPES, TOKEN_RATE, machine, random_voice

SECONDS = 10


Weights = Callable[[Part], Mapping[str, Tensor]]
"""Tensors of a network under their published names."""


def logits(config: ModelConfig, weights: Weights, device: str) -> Callable[[torch.dtype], Tensor]:
    """Speech logits ``[T, rows]`` after each of 10 s of speech tokens."""
    tensors = weights("llm")
    tokens = random_voice(config.flow, TOKEN_RATE * SECONDS).speech_tokens

    def compute(dtype: torch.dtype) -> Tensor:
        lm = SpeechLM.from_tensors(config.speech_lm, tensors, device, dtype)
        prompt = lm.embed(Prompt(range(40), prompt_speech=tokens.tolist()).segments())
        length = prompt.shape[0]
        cache = KVCache(config.speech_lm, 1, length, device, dtype)
        hidden = lm(prompt[None], torch.arange(length, device=device)[None], cache.view(0, 1), length)
        return lm.logits(hidden)[0, -len(tokens) :].float()

    return compute


def mel(
    config: ModelConfig, weights: Weights, device: str, fused: bool = False
) -> Callable[[torch.dtype], Tensor]:
    """Mel ``[bins, T]`` of 10 s after a prompt of 3 s, chunk by chunk."""
    tensors = weights("flow")
    prompt = flow_prompt(random_voice(config.flow, TOKEN_RATE * 3))
    tokens = random_voice(config.flow, TOKEN_RATE * SECONDS).speech_tokens.tolist()

    def compute(dtype: torch.dtype) -> Tensor:
        flow = Flow.from_tensors(config.flow, tensors, device, dtype)
        stream = FlowStream(flow, num_pages=SECONDS + 4)
        if fused:
            from cosyvoice_runtime.flow.kernels.choice import fused_solver  # needs the package triton

            buckets = CallBuckets(rows=(1,), blocks=(1,), before=(SECONDS + 3,))
            stream.capture(buckets, CudaGraphCapture(flow.device), fused_solver(flow))
        state = stream.open(prompt)
        state.push(tokens, last=True)
        [mel] = stream.advance([state])
        return mel

    return compute


def wave(config: ModelConfig, weights: Weights, device: str) -> Callable[[torch.dtype], Tensor]:
    """Waveform of 10 s of one mel and source."""
    tensors = weights("hift")
    frames = torch.from_numpy(random_voice(config.flow, TOKEN_RATE * SECONDS).prompt_mel).T[None].to(device)
    reference = HiFT.from_tensors(config.vocoder, tensors, device)
    source = reference.source(reference.f0(frames))

    def compute(dtype: torch.dtype) -> Tensor:
        return HiFT.from_tensors(config.vocoder, tensors, device, dtype).decode(frames, source)

    return compute


def networks(options: argparse.Namespace) -> tuple[str, ModelConfig, Weights]:
    """Name, configuration and weights of what is measured."""
    if options.checkpoint is None:
        config = FAMILIES[options.family][options.size]
        return f"{options.family}, {options.size}", config, lambda part: dict(random_tensors(part, config, 0))
    layout, config = Layout(options.checkpoint), load_config(options.checkpoint)
    if layout.family.name not in FAMILIES:
        limit = f"one of {' or '.join(FAMILIES)}; ./run.sh check compares {layout.family.name}"
        raise InvalidInput("checkpoint", str(options.checkpoint), limit)
    return str(options.checkpoint), config, lambda part: load_tensors(layout, part, config)


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_network(arguments, size="tiny")
    arguments.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments.add_argument("--checkpoint", type=Path, help="in place of random weights")
    options = arguments.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    try:
        name, config, weights = networks(options)
    except CosyVoiceError as error:
        arguments.error(str(error))
    print(f"{machine(options.device)}, {name}")
    print("| dtype | LM same best token | LM KL divergence | flow mel SNR dB | vocoder wave SNR dB |")
    print("|---|---|---|---|---|")
    with torch.inference_mode():
        computations = [part(config, weights, options.device) for part in (logits, mel, wave)]
        expected = [compute(torch.float32) for compute in computations]
        for dtype in ("bfloat16", "float16"):
            found = [compute(DTYPES[dtype]) for compute in computations]
            found_logits, expected_logits = found[0].cpu().numpy(), expected[0].cpu().numpy()
            agreement = same_best(found_logits, expected_logits)
            apart = divergence(found_logits, expected_logits)
            ratios = [_decibels(*pair) for pair in zip(found[1:], expected[1:], strict=True)]
            print(f"| {dtype} | {agreement:.1%} | {apart:.2e} | {ratios[0]:.1f} | {ratios[1]:.1f} |")
        if options.device == "cuda":
            found_fused = mel(config, weights, options.device, fused=True)(torch.float16)
            print(f"| float16, fused kernels | | | {_decibels(found_fused, expected[1]):.1f} | |")


def _decibels(found: Tensor, expected: Tensor) -> float:
    return decibels(found.float().cpu().numpy(), expected.float().cpu().numpy())


if __name__ == "__main__":
    main()
