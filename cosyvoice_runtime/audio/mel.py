"""Log-mel spectrograms: of the flow, and of Whisper for the speech tokenizer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.audio.audio import EXTRACTOR_SAMPLE_RATE
from cosyvoice_runtime.audio.spectra import power_spectra, slaney_filters

MEL_BINS = 80
POWER_FLOOR = 1e-9  # added under the root of the power spectrum (Matcha-TTS, HiFi-GAN)
MEL_FLOOR = 1e-5


@dataclass(frozen=True)
class MelFormat:
    """`feat_extractor` of a published configuration; by default of ``cosyvoice2.yaml``, 50 frames per second.

    Attributes:
        sample_rate: Hz of the samples.
        hop: samples per frame.
        fft_size: samples of a window.
        high_hz: upper edge of the filters.
        read_at: Hz to which a recording is brought before its samples are taken as of ``sample_rate``: 0 is
            that rate. Another is wrong, and is how the published code makes CosyVoice-300M's prompts
            (FunAudioLLM/CosyVoice ``ace7c47``: at 24 kHz), 9 % too long and too low.
    """

    sample_rate: int = 24_000
    hop: int = 480
    fft_size: int = 1920
    high_hz: float = 8000.0
    read_at: int = 0


def mel_spectrogram(samples: Floats, mel: MelFormat = MelFormat()) -> Floats:
    """Natural-log magnitude mel.

    Args:
        samples: [n] float32 at the format's rate, more than half of what a window is longer than a hop.
        mel: of the checkpoint's family.

    Returns:
        [n // hop, 80] float32.
    """
    margin = (mel.fft_size - mel.hop) // 2
    padded = np.pad(samples, margin, mode="reflect")
    magnitude = np.sqrt(power_spectra(padded, mel.fft_size, mel.hop) + np.float32(POWER_FLOOR))
    bands = magnitude @ slaney_filters(mel.sample_rate, mel.fft_size, MEL_BINS, mel.high_hz).T
    return np.log(np.maximum(bands, np.float32(MEL_FLOOR)))


# Whisper (large-v3) front end; 100 frames per second.
LOG_MEL_HOP = 160
LOG_MEL_BINS = 128
LOG_MEL_WINDOW = 400
LOG_MEL_HIGH_HZ = 8000.0
LOG_MEL_FLOOR = 1e-10
DYNAMIC_RANGE = 8.0
"""Powers of ten below the loudest cell of the utterance, below which everything is cut off."""


def log_mel_spectrogram(samples: Floats) -> Floats:
    """Base-10 log power mel, scaled as Whisper expects.

    Args:
        samples: [n] float32 at 16 kHz, at least 201.

    Returns:
        [128, n // 160] float32 at 100 Hz.
    """
    padded = np.pad(samples, LOG_MEL_WINDOW // 2, mode="reflect")
    power = power_spectra(padded, LOG_MEL_WINDOW, LOG_MEL_HOP)[:-1]
    mel = slaney_filters(EXTRACTOR_SAMPLE_RATE, LOG_MEL_WINDOW, LOG_MEL_BINS, LOG_MEL_HIGH_HZ) @ power.T
    log_mel = np.log10(np.maximum(mel, np.float32(LOG_MEL_FLOOR)))
    lowest = log_mel.max() - np.float32(DYNAMIC_RANGE)
    return (np.maximum(log_mel, lowest) + np.float32(4.0)) / np.float32(4.0)
