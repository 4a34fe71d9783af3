"""Effects of chunk joins and of the end on a waveform."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyvoice_runtime.audio.mel import slaney_filters

RATE = 24_000
WINDOW, HOP = 512, 120
"""21 and 5 ms."""
BINS = 40
REACH = 3
"""Frames on each side whose windows see a join."""
ASIDE = 8
"""Frames between a join and what its level is compared with: 40 ms."""
EDGE = 50
END_S = 0.04


def changes(samples: Tensor) -> Tensor:
    """Mean log-mel distance between neighbouring frames, its maximum over what sees a place: ``[frames]``."""
    window = torch.hann_window(WINDOW)
    spectrum = torch.stft(samples, WINDOW, HOP, window=window, return_complex=True).abs()
    filters = torch.from_numpy(slaney_filters(RATE, WINDOW, BINS, RATE / 2))
    log_mel = (filters @ spectrum).clamp(min=1e-4).log()
    return _widest(log_mel.diff(dim=1).abs().mean(0))


def spikes(samples: Tensor) -> Tensor:
    """Level around a place above the louder of the levels 40 ms before and after, in dB: ``[frames]``."""
    frames = samples[: len(samples) // HOP * HOP].view(-1, HOP)
    level = 10 * (frames.square().mean(1) + 1e-7).log10()
    padded = F.pad(level[None], (ASIDE, ASIDE), mode="replicate")[0]
    return _widest(level) - torch.maximum(padded[: len(level)], padded[2 * ASIDE :])


def at_and_elsewhere(measure: Tensor, joins: Sequence[int]) -> tuple[list[float], list[float]]:
    """Values of :func:`changes` or :func:`spikes` at the joins (sample numbers), and all others.

    Without the first and last quarter of a second, which are mostly silence.
    """
    places = [join // HOP for join in joins if join // HOP < len(measure)]
    near = torch.zeros(len(measure), dtype=torch.bool)
    for place in places:
        near[max(0, place - 2 * REACH) : place + 2 * REACH + 1] = True
    near[:EDGE] = near[len(near) - EDGE :] = True
    return measure[places].tolist(), measure[~near].tolist()


def end_level(samples: Tensor) -> float:
    """Level of the last 40 ms relative to the whole, in dB."""
    end = samples[-round(END_S * RATE) :].square().mean() + 1e-9
    return float(10 * (end / samples.square().mean()).log10())


def _widest(values: Tensor) -> Tensor:
    return F.max_pool1d(values[None], 2 * REACH + 1, 1, REACH)[0]
