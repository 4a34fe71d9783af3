"""How a voice sounds without any trained network: Gaussians over the frames of its recordings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal

from cosyvoice_runtime.audio.mel import slaney_filters
from demo_voice.training.f0 import track_f0

RATE = 16_000
WINDOW, HOP = 512, 160
BINS, COEFFICIENTS = 40, 20
QUIET_DB = 30.0
"""Frames so far below the loudest are pauses."""
LEAST_VARIANCE = 1e-4


def cepstra(samples: Tensor) -> Tensor:
    """float64 ``[T, 19]``: cepstrum without its level, of the frames of 16 kHz samples that are no pause."""
    window = torch.hann_window(WINDOW)
    power = torch.stft(samples, WINDOW, HOP, window=window, return_complex=True).abs().square()
    filters = torch.from_numpy(slaney_filters(RATE, WINDOW, BINS, 7600.0))
    log_mel = (filters @ power).clamp(min=1e-8).log()
    energy = power.sum(0).log10() * 10
    return (_cosines() @ log_mel[:, energy > energy.max() - QUIET_DB])[1:].T.double()


def pitches(samples: Tensor) -> Tensor:
    """float64 ``[T]``: log F0 of the voiced frames of 16 kHz samples."""
    f0 = track_f0(samples, RATE)
    return f0[f0 > 0].log().double()


def _cosines() -> Tensor:
    place = (torch.arange(BINS) + 0.5) * math.pi / BINS
    return torch.cos(torch.arange(COEFFICIENTS)[:, None] * place)


class Timbre:
    """One speaker: a Gaussian with full covariance over cepstra, another over log F0.

    Text-independent speaker identification by second-order statistics (Bimbot, Magrin-Chagnolleau and Mathan,
    Speech Communication 17, 1995), with pitch beside them.

    Args:
        recordings: 16 kHz samples of different sentences; thousands of frames together, dozens voiced.
    """

    def __init__(self, recordings: Sequence[Tensor]) -> None:
        frames = torch.cat([cepstra(one) for one in recordings])
        floor = LEAST_VARIANCE * torch.eye(frames.shape[1], dtype=frames.dtype)
        self._cepstra = MultivariateNormal(frames.mean(0), torch.cov(frames.T) + floor)
        voiced = torch.cat([pitches(one) for one in recordings])
        self._pitches = Normal(voiced.mean(), voiced.std())

    def likelihood(self, frames: Tensor, voiced: Tensor) -> float:
        """Mean log-likelihood of a frame's cepstrum, and of a voiced one's pitch if there is any."""
        pitch = self._pitches.log_prob(voiced).mean().item() if len(voiced) else 0.0
        return self._cepstra.log_prob(frames).mean().item() + pitch


class Timbres:
    """Speakers by some recordings of each."""

    def __init__(self, known: Mapping[str, Sequence[Tensor]]) -> None:
        self._timbres = {name: Timbre(recordings) for name, recordings in known.items()}

    def nearest(self, samples: Tensor, names: Sequence[str]) -> str:
        """Which of the speakers would most likely say these 16 kHz samples."""
        frames, voiced = cepstra(samples), pitches(samples)
        return max(names, key=lambda name: self._timbres[name].likelihood(frames, voiced))
