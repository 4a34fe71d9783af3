"""Whisper's log-mel spectrogram at 16 kHz: what the speech tokenizer reads."""

from __future__ import annotations

import torch
from torch import Tensor

from cosyvoice_runtime.audio.filters import slaney_filters
from cosyvoice_runtime.audio.rates import EXTRACTOR_SAMPLE_RATE

# Whisper (large-v3) front end; 100 frames per second.
LOG_MEL_HOP = 160
LOG_MEL_BINS = 128
FFT_SIZE = 400
HIGH_HZ = 8000.0
POWER_FLOOR = 1e-10
DYNAMIC_RANGE = 8.0
"""Powers of ten below the loudest cell of the utterance, below which everything is cut off."""


def log_mel_spectrogram(samples: Tensor) -> Tensor:
    """Base-10 log power mel, scaled as Whisper expects.

    Args:
        samples: [n] float32 at 16 kHz, at least 201.

    Returns:
        [128, n // 160] float32 at 100 Hz.
    """
    window = torch.hann_window(FFT_SIZE)
    spectrum = torch.stft(samples, FFT_SIZE, LOG_MEL_HOP, window=window, return_complex=True)
    power = spectrum[:, :-1].abs().square()
    mel = slaney_filters(EXTRACTOR_SAMPLE_RATE, FFT_SIZE, LOG_MEL_BINS, HIGH_HZ) @ power
    log_mel = mel.clamp(min=POWER_FLOOR).log10()
    return (log_mel.clamp(min=log_mel.max().item() - DYNAMIC_RANGE) + 4.0) / 4.0
