"""Sample rate conversion by a Hann-windowed sinc, as the checkpoint's training data was converted."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

# torchaudio's defaults, which upstream's front end uses: zero crossings on each side of the kernel, and
# the cutoff as a share of the lower Nyquist frequency.
ZERO_CROSSINGS = 6
ROLLOFF = 0.99


def resample(samples: Tensor, rate: int, new_rate: int) -> Tensor:
    """Convert [n] float32 at ``rate`` to [ceil(n * new_rate / rate)] float32 at ``new_rate``.

    Outside the signal is silence. Any pair of rates works; an unusual ratio only has a larger table
    of kernels.
    """
    if rate == new_rate:
        return samples
    divisor = math.gcd(rate, new_rate)
    step, phases = rate // divisor, new_rate // divisor
    length = math.ceil(samples.shape[0] * phases / step)
    kernels = _kernels(step, phases)
    taps = kernels.shape[1]
    periods = math.ceil(length / phases)
    padded = F.pad(samples, (taps // 2 - 1, taps + step))
    output = samples.new_empty(periods, phases)
    for phase in range(
        min(phases, length)
    ):  # the outputs phase, phase + phases, ... lie ``step`` inputs apart
        windows = padded[phase * step // phases :].unfold(0, taps, step)
        output[:, phase] = windows[:periods] @ kernels[phase]
    return output.flatten()[:length]


@lru_cache(maxsize=16)
def _kernels(step: int, phases: int) -> Tensor:
    """Interpolation kernels [phases, taps]; tap ``taps // 2 - 1`` weighs the sample before the output."""
    cutoff = ROLLOFF * min(1.0, phases / step)
    half = math.ceil(ZERO_CROSSINGS / cutoff) + 1
    offsets = torch.arange(1 - half, half + 1, dtype=torch.float64)
    fractions = torch.arange(phases, dtype=torch.float64) * step % phases / phases
    time = (cutoff * (offsets - fractions[:, None])).clamp(-ZERO_CROSSINGS, ZERO_CROSSINGS)
    window = torch.cos(time * (math.pi / 2 / ZERO_CROSSINGS)).square()
    return (cutoff * torch.sinc(time) * window).float()
