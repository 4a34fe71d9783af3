"""Whether the fused kernels compute the flow's steps, or the plain modules."""

from __future__ import annotations

import importlib.util
import logging
from typing import Literal, get_args

import torch

from cosyvoice_runtime.checkpoint.config import EstimatorConfig
from cosyvoice_runtime.checkpoint.config_cosyvoice3 import DiTConfig
from cosyvoice_runtime.errors import InvalidInput

Kernels = Literal["auto", "fused", "plain"]
FUSED_FROM = (9, 0)
"""Compute capability from which the kernels fit: older GPUs have less shared memory, and cannot start a
kernel before the one before ends."""

_log = logging.getLogger(__name__)


def fused_chosen(
    kernels: str, device: torch.device, dtype: torch.dtype, config: EstimatorConfig | DiTConfig
) -> bool:
    """Whether to take the fused kernels; the log says which way runs, and why.

    Args:
        kernels: "auto" takes them wherever they run, "fused" insists, "plain" never takes them.

    Raises:
        InvalidInput: another word, or "fused" where they cannot run.
    """
    if kernels not in get_args(Kernels):
        raise InvalidInput("kernels", kernels, f"one of {', '.join(get_args(Kernels))}")
    obstacle = "asked for" if kernels == "plain" else fused_obstacle(device, dtype, config)
    if kernels == "fused" and obstacle is not None:
        raise InvalidInput("kernels", kernels, f"the fused kernels cannot run: {obstacle}")
    way = "fused" if obstacle is None else f"plain ({obstacle})"
    _log.info("kernels of the flow's steps on %s: %s", device, way)
    return obstacle is None


def fused_obstacle(
    device: torch.device, dtype: torch.dtype, config: EstimatorConfig | DiTConfig
) -> str | None:
    """Why the fused kernels cannot run here; None if they can."""
    if not isinstance(config, EstimatorConfig):
        return "they compute CosyVoice2's estimator alone"
    if device.type != "cuda":
        return f"they need an NVIDIA GPU, not {device.type}"
    if dtype != torch.float16:
        return f"they are made and measured for float16, not {dtype}".replace("torch.", "")
    if torch.cuda.get_device_capability(device) < FUSED_FROM:
        return "the GPU's compute capability is below {}.{}".format(*FUSED_FROM)
    if importlib.util.find_spec("triton") is None:
        return "the package triton is not installed"
    for name in ("channels", "num_heads", "head_dim"):
        size = getattr(config, name)
        if size & (size - 1):
            return f"the estimator's {name} are {size}, no power of two"
    return None
