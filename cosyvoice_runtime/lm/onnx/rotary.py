"""Angles by which the speech LM's heads are turned at each position."""

from __future__ import annotations

import numpy as np

from cosyvoice_runtime.arrays import Array, Floats
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig


def rotary(config: SpeechLMConfig, positions: Array) -> tuple[Floats, Floats]:
    """Cosines and sines [positions, head_dim / 2] float32, of angles in float32 as PyTorch computes them."""
    exponents = np.arange(0, config.head_dim, 2, dtype=np.float32) / np.float32(config.head_dim)
    speeds = np.float32(1) / np.power(np.float32(config.rope_theta), exponents)
    angles = positions.astype(np.float32)[:, None] * speeds
    return np.cos(angles), np.sin(angles)
