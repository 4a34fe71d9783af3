"""Signals with the loudness of speech."""

from __future__ import annotations

import math

import numpy as np

from cosyvoice_runtime.arrays import Floats


def tone(hz: float, seconds: float, rate: int, amplitude: float = 0.3) -> Floats:
    time = np.arange(round(seconds * rate)) / rate
    return (amplitude * np.sin(2 * math.pi * hz * time)).astype(np.float32)


def noise(samples: int, seed: int = 0, scale: float = 0.1) -> Floats:
    return np.float32(scale) * np.random.default_rng(seed).standard_normal(samples, np.float32)
