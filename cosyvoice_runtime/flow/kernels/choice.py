"""Whether fused kernels compute, or the plain modules."""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import sysconfig
from pathlib import Path
from typing import Literal, get_args

import torch

from cosyvoice_runtime.checkpoint.config import EncoderConfig, EstimatorConfig, SpeechLMConfig
from cosyvoice_runtime.checkpoint.config_cosyvoice3 import DiTConfig
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.flow.solvers import EULER
from cosyvoice_runtime.gpu.nvidia import FUSED_FROM

Kernels = Literal["auto", "fused", "plain"]
DRAWN_FROM = (8, 0)
"""Compute capability from which the Triton language supports GPUs."""
ROWS_OF_A_PROGRAM = 32
"""Most rows of a layer that one program of the speech LM's kernels computes."""
LEAST_DEPTH = 16
"""Least values that tensor cores multiply and add at a time."""

_POWERS_OF_TWO = {
    EstimatorConfig: ("channels", "num_heads", "head_dim"),
    DiTConfig: ("width", "num_heads", "head_dim", "feed_forward_factor"),
}

_log = logging.getLogger(__name__)


def fused_chosen(kernels: str, work: str, device: torch.device, obstacle: str | None) -> bool:
    """Whether to take the fused kernels; the log says which way runs, and why.

    Args:
        kernels: "auto" takes them wherever they run, "fused" insists, "plain" never takes them.
        work: what they compute, for the log.
        obstacle: why they cannot run, if they cannot.

    Raises:
        InvalidInput: another word, or "fused" where they cannot run.
    """
    if kernels not in get_args(Kernels):
        raise InvalidInput("kernels", kernels, f"one of {', '.join(get_args(Kernels))}")
    if kernels == "fused" and obstacle is not None:
        raise InvalidInput("kernels", kernels, f"the fused kernels cannot run: {obstacle}")
    if kernels == "plain":
        obstacle = "asked for"
    way = "fused" if obstacle is None else f"plain ({obstacle})"
    _log.info("kernels of %s on %s: %s", work, device, way)
    return obstacle is None


def solver_obstacle(
    device: torch.device, dtype: torch.dtype, config: EstimatorConfig | DiTConfig, solver: str = EULER
) -> str | None:
    """Why the fused kernels cannot take the flow's steps; None if they can."""
    if solver != EULER:
        return f"they take steps of solver {EULER} alone"
    obstacle = _machine_obstacle(device, dtype, torch.float16)
    if obstacle is not None:
        return obstacle
    for name in _POWERS_OF_TWO[type(config)]:
        size = getattr(config, name)
        if size & (size - 1):
            return f"{name} of the estimator is {size}, no power of two"
    return None


def encoder_obstacle(device: torch.device, dtype: torch.dtype, config: EncoderConfig) -> str | None:
    """Why the fused kernel cannot attend in the flow's encoder; None if it can."""
    obstacle = _machine_obstacle(device, dtype, torch.float16)
    if obstacle is not None:
        return obstacle
    size = config.head_dim
    if size & (size - 1) or size < LEAST_DEPTH:
        return f"a head of the encoder has {size} values: no power of two, or too few"
    return None


def decoder_obstacle(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why the fused kernels cannot take the vocoder's decoder; None if they can."""
    return _machine_obstacle(device, dtype, torch.float16)


def step_obstacle(device: torch.device, dtype: torch.dtype, config: SpeechLMConfig) -> str | None:
    """Why the fused kernels cannot take the speech LM's steps and prompts; None if they can."""
    if not config.rotary:
        return "they turn positions, and this speech LM attends by distance"
    obstacle = _machine_obstacle(device, dtype, torch.bfloat16)
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
    return _triton_obstacle()


def _machine_obstacle(device: torch.device, dtype: torch.dtype, wanted: torch.dtype) -> str | None:
    if device.type != "cuda":
        return f"they need an NVIDIA GPU, not {device.type}"
    if dtype != wanted:
        return f"they are made and measured for {wanted}, not {dtype}".replace("torch.", "")
    if torch.cuda.get_device_capability(device) < FUSED_FROM:
        return "the GPU's compute capability is below {}.{}".format(*FUSED_FROM)
    return _triton_obstacle()


def _triton_obstacle() -> str | None:
    """Why the Triton language makes no kernel; it has launchers compiled by the machine's C compiler."""
    if importlib.util.find_spec("triton") is None:
        return "the package triton is not installed"
    if not (os.environ.get("CC") or any(map(shutil.which, ("gcc", "clang")))):
        return "triton finds no C compiler (gcc)"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return "triton finds no Python.h (Debian's package python3-dev)"
    return None
