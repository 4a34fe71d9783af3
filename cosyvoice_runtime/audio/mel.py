"""Features of audio: the flow's mel, Whisper's for the speech tokenizer, Kaldi's for the speaker encoder."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.audio.audio import EXTRACTOR_SAMPLE_RATE

BLOCK_FRAMES = 128
"""Frames transformed together: their doubles stay within a core's cache."""


def frames_of(samples: Floats, size: int, hop: int) -> Floats:
    """All frames that lie within the signal: a view ``[(n - size) // hop + 1, size]``."""
    return np.lib.stride_tricks.sliding_window_view(samples, size)[::hop]


def power_spectra(samples: Floats, size: int, hop: int) -> Floats:
    """Squared magnitudes of all Hann-windowed frames: ``[frames, size // 2 + 1]`` float32."""
    frames = frames_of(samples, size, hop)
    powers = np.empty((len(frames), size // 2 + 1), np.float32)
    for start in range(0, len(frames), BLOCK_FRAMES):
        spectra = np.fft.rfft(frames[start : start + BLOCK_FRAMES] * hann_window(size))
        powers[start : start + BLOCK_FRAMES] = squared(spectra)
    return powers


def squared(spectra: npt.NDArray[np.complex128]) -> npt.NDArray[np.float64]:
    """Squared magnitudes."""
    return np.square(spectra.real) + np.square(spectra.imag)


@cache
def hann_window(size: int) -> Floats:
    """One period of it, float32 ``[size]``. Shared between callers: don't write to it."""
    return (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)).astype(np.float32)


# Slaney, Auditory Toolbox (1998): 200/3 Hz per mel up to 1 kHz, then 27 mels per factor of 6.4.
LINEAR_HZ_PER_MEL = 200.0 / 3.0
LOG_START_HZ = 1000.0
LOG_STEP = math.log(6.4) / 27.0
LOG_START_MEL = LOG_START_HZ / LINEAR_HZ_PER_MEL


@cache
def slaney_filters(rate: int, fft_size: int, bins: int, high_hz: float) -> Floats:
    """Triangles of unit area from 0 to ``high_hz``: [bins, fft_size // 2 + 1] float32.

    Shared between callers: don't write to it.
    """
    edges = _mel_to_hz(np.linspace(0.0, _hz_to_mel(high_hz), bins + 2))[:, None]
    frequencies = np.linspace(0.0, rate / 2, fft_size // 2 + 1)
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    rising = (frequencies - left) / (centre - left)
    falling = (right - frequencies) / (right - centre)
    triangles = np.maximum(np.minimum(rising, falling), 0.0)
    return (triangles * 2.0 / (right - left)).astype(np.float32)


def _hz_to_mel(hz: float) -> float:
    if hz < LOG_START_HZ:
        return hz / LINEAR_HZ_PER_MEL
    return LOG_START_MEL + math.log(hz / LOG_START_HZ) / LOG_STEP


def _mel_to_hz(mels: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    linear = mels * LINEAR_HZ_PER_MEL
    logarithmic = LOG_START_HZ * np.exp((mels - LOG_START_MEL) * LOG_STEP)
    return np.where(mels < LOG_START_MEL, linear, logarithmic)


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
        bins: filters.
        read_at: Hz to which a recording is brought before its samples are taken as of ``sample_rate``: 0 is
            that rate. Another is wrong, and is how the published code makes CosyVoice-300M's prompts
            (FunAudioLLM/CosyVoice ``ace7c47``: at 24 kHz), 9 % too long and too low.
    """

    sample_rate: int = 24_000
    hop: int = 480
    fft_size: int = 1920
    high_hz: float = 8000.0
    bins: int = 80
    read_at: int = 0


def mel_spectrogram(samples: Floats, mel: MelFormat = MelFormat()) -> Floats:
    """Natural-log magnitude mel.

    Args:
        samples: [n] float32 at the format's rate, more than half of what a window is longer than a hop.
        mel: of the checkpoint's family.

    Returns:
        [n // hop, bins] float32.
    """
    margin = (mel.fft_size - mel.hop) // 2
    padded = np.pad(samples, margin, mode="reflect")
    magnitude = np.sqrt(power_spectra(padded, mel.fft_size, mel.hop) + np.float32(POWER_FLOOR))
    bands = magnitude @ slaney_filters(mel.sample_rate, mel.fft_size, mel.bins, mel.high_hz).T
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
