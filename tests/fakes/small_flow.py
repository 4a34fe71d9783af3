"""A small random flow whose sizes differ from the reference's and from each other."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from cosyvoice_runtime.checkpoint.config_flow import (
    DiTConfig,
    EncoderConfig,
    EstimatorConfig,
    FlowConfig,
    LookAheadConfig,
)
from cosyvoice_runtime.flow.solvers import EULER
from cosyvoice_runtime.flow.torch.flow import Flow, FlowNetwork
from cosyvoice_runtime.flow.voice_flow import FlowPrompt
from prompts import prompt_of_tensors

CONFIG = FlowConfig(
    token_vocab_size=50,
    token_width=24,
    mel_bins=20,
    speaker_dim=12,
    lookahead_tokens=3,
    frames_per_token=2,
    token_rate=25,
    cfg_rate=0.7,
    encoder=EncoderConfig(
        width=32, num_heads=2, feed_forward_width=40, num_layers=2, num_up_layers=1, chunk_tokens=25
    ),
    estimator=EstimatorConfig(
        in_channels=80, channels=16, num_heads=2, head_dim=8, blocks_per_stage=1, num_mid_stages=1,
        chunk_frames=50,
    ),
)  # fmt: skip

COSYVOICE3 = dataclasses.replace(
    CONFIG,
    token_width=CONFIG.mel_bins,
    encoder=LookAheadConfig(channels=24, chunk_tokens=25),
    estimator=DiTConfig(width=32, depth=2, num_heads=2, head_dim=8, feed_forward_factor=3, chunk_frames=50),
)
"""Of the other family; prompts and tokens are the same."""


def random_flow(
    dtype: torch.dtype = torch.float32,
    num_steps: int | None = 4,
    compiled: Any = None,
    config: FlowConfig = CONFIG,
    solver: str = EULER,
) -> Flow:
    flow = Flow(config, random_network(dtype, config), num_steps, solver)
    if compiled is not None:
        compiled.take(flow)
    return flow


def random_network(dtype: torch.dtype = torch.float32, config: FlowConfig = CONFIG) -> FlowNetwork:
    torch.manual_seed(3)
    network = FlowNetwork(config).to(dtype).eval().requires_grad_(False)
    for parameter in network.parameters():
        if parameter.dim() > 1:
            parameter *= 1.5
    return network


def random_prompt(length: int, seed: int) -> FlowPrompt:
    generator = torch.Generator().manual_seed(seed)
    return prompt_of_tensors(
        tokens=torch.randint(CONFIG.token_vocab_size, (length,), generator=generator),
        mel=torch.randn(CONFIG.frames_per_token * length, CONFIG.mel_bins, generator=generator),
        speaker=torch.randn(CONFIG.speaker_dim, generator=generator),
    )


def random_tokens(length: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed + 1000)
    return torch.randint(CONFIG.token_vocab_size, (length,), generator=generator).tolist()
