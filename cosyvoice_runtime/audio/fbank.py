"""Kaldi filter-bank features at 16 kHz: what the speaker encoder reads."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.audio.audio import EXTRACTOR_SAMPLE_RATE
from cosyvoice_runtime.audio.spectra import frames_of, squared

# CAM++ front end: Kaldi's defaults (25 ms frames, 10 ms hop, no frame beyond the signal) without
# dither, on samples in [-1, 1] rather than Kaldi's 16-bit range.
FBANK_BINS = 80
FRAME_SIZE = 400
FRAME_HOP = 160
FFT_SIZE = 512
PREEMPHASIS = 0.97
LOW_HZ = 20.0
MEL_SCALE = 1127.0
MEL_BREAK_HZ = 700.0
POVEY_EXPONENT = 0.85
ENERGY_FLOOR = np.finfo(np.float32).eps


def fbank(samples: Floats) -> Floats:
    """Natural-log filter-bank energies.

    Args:
        samples: [n] float32 at 16 kHz, at least 400.

    Returns:
        [(n - 400) // 160 + 1, 80] float32 at 100 Hz.
    """
    frames = frames_of(samples, FRAME_SIZE, FRAME_HOP)
    frames = frames - frames.mean(axis=1, keepdims=True)
    previous = np.concatenate([frames[:, :1], frames[:, :-1]], axis=1)
    windowed = (frames - np.float32(PREEMPHASIS) * previous) * _povey_window()
    power = squared(np.fft.rfft(windowed, FFT_SIZE)).astype(np.float32)
    return np.log(np.maximum(power @ _filters().T, ENERGY_FLOOR))


def centred_fbank(samples: Floats) -> Floats:
    """:func:`fbank` minus its mean over time, per bin."""
    features = fbank(samples)
    return features - features.mean(axis=0)


@cache
def _povey_window() -> Floats:
    symmetric = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FRAME_SIZE) / (FRAME_SIZE - 1))
    return (symmetric**POVEY_EXPONENT).astype(np.float32)


@cache
def _filters() -> Floats:
    """Triangles of unit height, straight on the mel axis: [80, 257].

    In float32 step by step, as Kaldi does: at the foot of a narrow low triangle the last bit of its
    edge is 1e-4 of the energy it lets through.
    """
    low, high = _mel(LOW_HZ), _mel(EXTRACTOR_SAMPLE_RATE / 2)
    spacing = np.float32((high - low) / (FBANK_BINS + 1))
    bins = np.arange(FBANK_BINS, dtype=np.float32)[:, None]
    left, centre, right = (np.float32(low) + (bins + np.float32(shift)) * spacing for shift in (0, 1, 2))
    hz = np.arange(FFT_SIZE // 2, dtype=np.float32) * np.float32(EXTRACTOR_SAMPLE_RATE / FFT_SIZE)
    # A float32 logarithm differs between processors; the rounded float64 one doesn't.
    ratios = np.float32(1.0) + hz / np.float32(MEL_BREAK_HZ)
    mels = np.float32(MEL_SCALE) * np.log(ratios.astype(np.float64)).astype(np.float32)
    triangles = np.minimum((mels - left) / (centre - left), (right - mels) / (right - centre))
    return np.pad(np.maximum(triangles, np.float32(0)), ((0, 0), (0, 1)))  # the Nyquist bin counts nowhere


def _mel(hz: float) -> float:
    return MEL_SCALE * math.log(1.0 + hz / MEL_BREAK_HZ)
