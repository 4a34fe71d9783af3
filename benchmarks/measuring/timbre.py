"""How a voice sounds without any trained network: cepstrum and pitch over a whole utterance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from cosyvoice_runtime.audio.filters import slaney_filters
from scripts.demo_voice.f0 import track_f0

RATE = 16_000
WINDOW, HOP = 512, 160
BINS, COEFFICIENTS = 40, 20
QUIET_DB = 30.0
"""Frames so far below the loudest are pauses."""


def features(samples: Tensor) -> Tensor:
    """Means of 19 cepstral coefficients, and median and spread of log-F0, of 16 kHz samples."""
    window = torch.hann_window(WINDOW)
    power = torch.stft(samples, WINDOW, HOP, window=window, return_complex=True).abs().square()
    log_mel = (slaney_filters(RATE, WINDOW, BINS, 7600.0) @ power).clamp(min=1e-8).log()
    energy = power.sum(0).log10() * 10
    cepstrum = (_cosines() @ log_mel[:, energy > energy.max() - QUIET_DB])[1:]
    f0 = track_f0(samples, RATE)
    log_f0 = f0[f0 > 0].log()
    pitch = torch.stack([log_f0.median(), log_f0.std()]) if len(log_f0) > 1 else torch.zeros(2)
    return torch.cat([cepstrum.mean(1), pitch])


def _cosines() -> Tensor:
    place = (torch.arange(BINS) + 0.5) * math.pi / BINS
    return torch.cos(torch.arange(COEFFICIENTS)[:, None] * place)


class Timbres:
    """Speakers by the features of some recordings, scaled by how much they vary within a speaker."""

    def __init__(self, known: Mapping[str, Sequence[Tensor]]) -> None:
        spoken = {name: torch.stack([features(one) for one in known[name]]) for name in known}
        self._means = {name: values.mean(0) for name, values in spoken.items()}
        variances = torch.stack([values.var(0) for values in spoken.values()])
        self._scale = variances.mean(0).sqrt()

    def nearest(self, samples: Tensor, names: Sequence[str]) -> str:
        """Which of the speakers has the least distance from the samples."""
        means = torch.stack([self._means[name] for name in names])
        distances = ((features(samples) - means) / self._scale).norm(dim=1)
        return names[int(distances.argmin())]
