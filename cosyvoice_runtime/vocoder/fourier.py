"""Short-time Fourier transform and its inverse, for rows of different lengths."""

from __future__ import annotations

from math import pi

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyvoice_runtime.vocoder.rows import Rows

MIN_ENVELOPE = 1e-11
"""Smallest sum of squared windows to divide by, as in torch.istft."""


class Fourier(nn.Module):
    """Centred STFT with a periodic Hann window; its frames are so short that matrix products beat FFTs.

    A spectrum is [B, size + 2, F] float32: real parts, then imaginary parts. A row of n samples has
    n / hop + 1 frames.
    """

    analysis: Tensor
    synthesis: Tensor
    window: Tensor

    def __init__(self, size: int, hop: int) -> None:
        super().__init__()
        self.size, self.hop = size, hop
        window = torch.hann_window(size, dtype=torch.float64)
        angle = 2 * pi / size * torch.outer(torch.arange(size // 2 + 1), torch.arange(size)).double()
        basis = torch.cat([angle.cos(), -angle.sin()]) * window  # [size + 2, size]
        weight = torch.full((size // 2 + 1, 1), 2 / size, dtype=torch.float64)
        weight[[0, -1]] /= 2
        self.register_buffer("analysis", basis.float(), persistent=False)
        self.register_buffer("synthesis", (basis * weight.repeat(2, 1)).T.float(), persistent=False)
        self.register_buffer("window", window.float(), persistent=False)

    def transform(self, signal: Tensor, rows: Rows, per_frame: int) -> Tensor:
        """Spectrum of [B, samples], each row reflected at its ends.

        ``per_frame``: spectral frames to a mel frame.
        """
        edge = self.size // 2
        padded = F.pad(signal[:, None], (edge, edge), mode="reflect").squeeze(1)
        if rows.ragged:
            self._reflect(padded, rows.lengths(per_frame * self.hop, edge))
        spectrum = F.linear(padded.unfold(1, self.size, self.hop), self.analysis).transpose(1, 2)
        return rows.trim(per_frame, 1)(spectrum)

    def invert(self, spectrum: Tensor, rows: Rows, per_frame: int) -> Tensor:
        """Signal [B, hop * (F - 1)] of a spectrum; meaningless beyond each row's end."""
        trim = rows.trim(per_frame, 1)
        batch, _, frames = spectrum.shape
        overlapped = self._overlap(trim(F.linear(spectrum.transpose(1, 2), self.synthesis).transpose(1, 2)))
        ones = spectrum.new_ones(batch if rows.ragged else 1, 1, frames)
        envelope = self._overlap(trim(ones) * self.window.square()[:, None])
        return overlapped / envelope.clamp(min=MIN_ENVELOPE)

    def _reflect(self, padded: Tensor, ends: Tensor) -> None:
        """Write the reflection of each row's last samples after its end."""
        steps = torch.arange(self.size // 2, device=padded.device)
        mirrored = padded.gather(1, ends[:, None] - 2 - steps)
        padded.scatter_(1, ends[:, None] + steps, mirrored)

    def _overlap(self, pieces: Tensor) -> Tensor:
        """Overlap-add of [B, size, F], without the half windows at both ends."""
        samples = self.hop * (pieces.shape[-1] - 1) + self.size
        signal = F.fold(pieces, (1, samples), (1, self.size), stride=(1, self.hop))
        edge = self.size // 2
        return signal[:, 0, 0, edge : samples - edge]
