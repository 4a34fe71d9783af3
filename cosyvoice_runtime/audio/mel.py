"""Log-mel spectrogram at 24 kHz: what the flow writes and reads as its prompt."""

from __future__ import annotations

import numpy as np

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.audio.filters import slaney_filters
from cosyvoice_runtime.audio.frames import power_spectra

# `feat_extractor` in the published cosyvoice2.yaml; 50 frames per second.
MEL_SAMPLE_RATE = 24_000
MEL_HOP = 480
MEL_BINS = 80
FFT_SIZE = 1920
HIGH_HZ = 8000.0
POWER_FLOOR = 1e-9  # added under the root of the power spectrum (Matcha-TTS, HiFi-GAN)
MEL_FLOOR = 1e-5


def mel_spectrogram(samples: Floats, high_hz: float = HIGH_HZ) -> Floats:
    """Natural-log magnitude mel.

    Args:
        samples: [n] float32 at 24 kHz, at least 721.
        high_hz: upper edge of the filters: 8 kHz in CosyVoice2, 12 kHz in CosyVoice3.

    Returns:
        [n // 480, 80] float32 at 50 Hz.
    """
    margin = (FFT_SIZE - MEL_HOP) // 2
    padded = np.pad(samples, margin, mode="reflect")
    magnitude = np.sqrt(power_spectra(padded, FFT_SIZE, MEL_HOP) + np.float32(POWER_FLOOR))
    mel = magnitude @ slaney_filters(MEL_SAMPLE_RATE, FFT_SIZE, MEL_BINS, high_hz).T
    return np.log(np.maximum(mel, np.float32(MEL_FLOOR)))
