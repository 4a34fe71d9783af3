"""Log-mel spectrogram: what the flow writes and reads as its prompt."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.audio.filters import slaney_filters
from cosyvoice_runtime.audio.frames import power_spectra

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
