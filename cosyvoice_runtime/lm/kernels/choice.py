"""Whether the fused kernels can compute a speech LM, and draw its tokens."""

from __future__ import annotations

import torch

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.gpu.kernels.choice import LEAST_DEPTH, machine_obstacle, triton_obstacle

DRAWN_FROM = (8, 0)
"""Compute capability from which the Triton language supports GPUs."""
ROWS_OF_A_PROGRAM = 32
"""Most rows of a layer that one program of the speech LM's kernels computes."""


def step_obstacle(device: torch.device, dtype: torch.dtype, config: SpeechLMConfig) -> str | None:
    """Why the fused kernels cannot take the speech LM's steps and prompts; None if they can."""
    if not config.rotary:
        return "they turn positions, and this speech LM attends by distance"
    obstacle = machine_obstacle(device, dtype, torch.bfloat16)
    if obstacle is not None:
        return obstacle
    if config.head_dim & (config.head_dim - 1) or config.head_dim < LEAST_DEPTH:
        return f"a head of the speech LM has {config.head_dim} values: no power of two, or too few"
    for name in ("hidden_size", "intermediate_size"):
        size = getattr(config, name)
        if size % ROWS_OF_A_PROGRAM:
            return f"the speech LM's {name} is {size}, no multiple of {ROWS_OF_A_PROGRAM}"
    return None


def draw_obstacle(device: torch.device) -> str | None:
    """Why the kernel cannot draw the speech LM's tokens; None if it can."""
    if device.type != "cuda":
        return f"it needs an NVIDIA GPU, not {device.type}"
    if torch.cuda.get_device_capability(device) < DRAWN_FROM:
        return "the GPU's compute capability is below {}.{}".format(*DRAWN_FROM)
    return triton_obstacle()
