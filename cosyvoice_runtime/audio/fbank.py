"""Kaldi filter-bank features at 16 kHz: what the speaker encoder reads."""

from __future__ import annotations

import math
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyvoice_runtime.audio.rates import EXTRACTOR_SAMPLE_RATE

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
ENERGY_FLOOR = torch.finfo(torch.float32).eps


def fbank(samples: Tensor) -> Tensor:
    """Natural-log filter-bank energies.

    Args:
        samples: [n] float32 at 16 kHz, at least 400.

    Returns:
        [(n - 400) // 160 + 1, 80] float32 at 100 Hz.
    """
    frames = samples.unfold(0, FRAME_SIZE, FRAME_HOP)
    frames = frames - frames.mean(dim=1, keepdim=True)
    previous = F.pad(frames[None], (1, 0), mode="replicate")[0, :, :-1]
    windowed = (frames - PREEMPHASIS * previous) * _povey_window()
    power = torch.fft.rfft(windowed, FFT_SIZE).abs().square()
    return (power @ _filters().T).clamp(min=ENERGY_FLOOR).log()


def centred_fbank(samples: Tensor) -> Tensor:
    """:func:`fbank` minus its mean over time, per bin."""
    features = fbank(samples)
    return features - features.mean(dim=0)


@cache
def _povey_window() -> Tensor:
    return torch.hann_window(FRAME_SIZE, periodic=False) ** POVEY_EXPONENT


@cache
def _filters() -> Tensor:
    """Triangles of unit height, straight on the mel axis: [80, 257].

    In float32 step by step, as Kaldi does: at the foot of a narrow low triangle the last bit of its
    edge is 1e-4 of the energy it lets through.
    """
    low, high = _mel(LOW_HZ), _mel(EXTRACTOR_SAMPLE_RATE / 2)
    spacing = (high - low) / (FBANK_BINS + 1)
    left, centre, right = (low + (torch.arange(FBANK_BINS)[:, None] + shift) * spacing for shift in (0, 1, 2))
    hz = torch.arange(FFT_SIZE // 2) * (EXTRACTOR_SAMPLE_RATE / FFT_SIZE)
    # A float32 logarithm differs between processors; the rounded float64 one doesn't.
    mels = MEL_SCALE * (1.0 + hz / MEL_BREAK_HZ).double().log().float()
    triangles = torch.minimum((mels - left) / (centre - left), (right - mels) / (right - centre))
    return F.pad(triangles.clamp(min=0.0), (0, 1))  # the Nyquist bin counts nowhere


def _mel(hz: float) -> float:
    return MEL_SCALE * math.log(1.0 + hz / MEL_BREAK_HZ)
