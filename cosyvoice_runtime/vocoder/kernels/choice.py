"""Whether the fused kernels can compute a vocoder's decoder."""

from __future__ import annotations

import torch

from cosyvoice_runtime.gpu.kernels.choice import machine_obstacle


def decoder_obstacle(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why the fused kernels cannot take the vocoder's decoder; None if they can."""
    return machine_obstacle(device, dtype, torch.float16)
