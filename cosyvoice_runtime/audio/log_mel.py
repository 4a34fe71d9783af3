"""Whisper's log-mel spectrogram at 16 kHz: what the speech tokenizer reads."""

from __future__ import annotations

import numpy as np

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.audio.filters import slaney_filters
from cosyvoice_runtime.audio.frames import power_spectra
from cosyvoice_runtime.audio.rates import EXTRACTOR_SAMPLE_RATE

# Whisper (large-v3) front end; 100 frames per second.
LOG_MEL_HOP = 160
LOG_MEL_BINS = 128
FFT_SIZE = 400
HIGH_HZ = 8000.0
POWER_FLOOR = 1e-10
DYNAMIC_RANGE = 8.0
"""Powers of ten below the loudest cell of the utterance, below which everything is cut off."""


def log_mel_spectrogram(samples: Floats) -> Floats:
    """Base-10 log power mel, scaled as Whisper expects.

    Args:
        samples: [n] float32 at 16 kHz, at least 201.

    Returns:
        [128, n // 160] float32 at 100 Hz.
    """
    padded = np.pad(samples, FFT_SIZE // 2, mode="reflect")
    power = power_spectra(padded, FFT_SIZE, LOG_MEL_HOP)[:-1]
    mel = slaney_filters(EXTRACTOR_SAMPLE_RATE, FFT_SIZE, LOG_MEL_BINS, HIGH_HZ) @ power.T
    log_mel = np.log10(np.maximum(mel, np.float32(POWER_FLOOR)))
    lowest = log_mel.max() - np.float32(DYNAMIC_RANGE)
    return (np.maximum(log_mel, lowest) + np.float32(4.0)) / np.float32(4.0)
