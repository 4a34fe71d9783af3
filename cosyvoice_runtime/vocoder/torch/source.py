"""Harmonic source: sines at the multiples of F0 where a frame is voiced, noise elsewhere; ends of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import pi

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyvoice_runtime.checkpoint.config import VocoderConfig
from cosyvoice_runtime.gpu.transfer import integers
from cosyvoice_runtime.vocoder.state import SourceNoise, UtteranceNoise

Trim = Callable[[Tensor], Tensor]


class Rows:
    """Row lengths in mel frames.

    A convolution pads a single utterance with zeros; in a batch the same zeros must follow each row's
    own end, so what a layer writes there is cleared again. Batches of equal rows skip that work.

    Args:
        frames: [B] int64.
        width: mel frames of the batch.
        ragged: whether a row may be shorter.
    """

    def __init__(self, frames: Tensor, width: int, ragged: bool = True) -> None:
        self.width = width
        self.ragged = ragged
        self._frames = frames
        self._beyond: dict[tuple[int, int], Tensor] = {}

    @classmethod
    def of(cls, frames: Sequence[int], device: torch.device) -> Rows:
        """A batch as wide as its longest row."""
        width = max(frames)
        return cls(integers(frames, device), width, min(frames) < width)

    @property
    def device(self) -> torch.device:
        return self._frames.device

    def __len__(self) -> int:
        return len(self._frames)

    def lengths(self, per_frame: int = 1, extra: int = 0) -> Tensor:
        """Row lengths in steps of a signal with ``per_frame`` steps a frame: [B] int64."""
        return self._frames * per_frame + extra

    def trim(self, per_frame: int = 1, extra: int = 0) -> Trim:
        """A function that zeroes, in place, what lies beyond each row's end of a [B, C, steps] signal."""
        if not self.ragged:
            return _whole
        beyond = self._mask(per_frame, extra)
        return lambda signal: signal.masked_fill_(beyond, 0)

    def _mask(self, per_frame: int, extra: int) -> Tensor:
        key = per_frame, extra
        if key not in self._beyond:
            steps = torch.arange(self.width * per_frame + extra, device=self.device)
            self._beyond[key] = (steps >= self.lengths(per_frame, extra)[:, None])[:, None]
        return self._beyond[key]


def _whole(signal: Tensor) -> Tensor:
    return signal


def source_noise(seed: int, hop: int) -> SourceNoise:
    """Noise of an utterance that begins now."""
    generator = torch.Generator().manual_seed(seed)
    return SourceNoise(hop, lambda count: torch.randn(count, generator=generator).numpy())


UNVOICED_NOISE = 1 / 3
"""Noise of unvoiced frames relative to the sine's amplitude (NSF, arXiv 1904.12088)."""


FROM_THE_START = -1
"""In place of the frame at which the phase goes on, where nothing has been emitted yet."""


@dataclass(frozen=True)
class PhaseCarry:
    """Phase at which a row goes on.

    Attributes:
        frame: [B] int64, the row's frame at whose centre ``cycles`` holds; -1 before the first frame.
        cycles: [B, harmonics] float64, in turns.
        f0: [B] float64, F0 of that frame in Hz, as it was used.
    """

    frame: Tensor
    cycles: Tensor
    f0: Tensor


class HarmonicSource(nn.Module):
    """Sines of all harmonics, merged to one signal by a learnt linear layer and tanh.

    The phase is that of a piecewise linear interpolation of the phases at the frame centres, constant
    before the first and after the last centre. It is accumulated over frames in float64; within a frame
    the few turns since its centre are float32.
    """

    offsets: Tensor

    def __init__(self, config: VocoderConfig) -> None:
        super().__init__()
        self.config = config
        self.num_sines = config.num_harmonics + 1
        self.l_linear = nn.Linear(self.num_sines, 1)
        offsets = (torch.arange(config.hop, dtype=torch.float64) + 0.5) / config.hop - 0.5
        self.register_buffer("offsets", offsets.float()[:, None], persistent=False)

    def forward(
        self, f0: Tensor, noise: Tensor | None, rows: Rows, carry: PhaseCarry | None = None
    ) -> tuple[Tensor, Tensor]:
        """Source samples of whole frames.

        Args:
            f0: [B, T] float64, Hz.
            noise: [B, hop * T] standard normal, or None for a source without noise.
            rows: ends of the rows.
            carry: phase to go on from; frames before ``carry.frame`` come out meaningless.

        Returns:
            source: [B, hop * T] float32 within -1..1.
            cycles: [B, T, harmonics] float64, phase at the frame centres in turns, 0 <= cycles < 1.
        """
        turns = self._turns_per_frame(f0, rows)
        cycles = self._accumulate(turns, carry)
        return self.merge(self._sines(turns, cycles), f0, noise), cycles

    def utterance_noise(self, seed: int) -> UtteranceNoise:
        return source_noise(seed, self.config.hop)

    def merge(self, sines: Tensor, f0: Tensor, noise: Tensor | None) -> Tensor:
        """Source [B, hop * T] of unit sines [B, T, hop, harmonics], F0 [B, T] and noise [B, hop * T]."""
        voiced = (f0 > self.config.voiced_threshold_hz)[..., None]
        source = F.linear(sines, self.l_linear.weight).squeeze(-1) * (voiced * self.config.sine_amplitude)
        if noise is not None:
            source = source + self._noise_level(voiced) * noise.view_as(source)
        return torch.tanh(source + self.l_linear.bias).flatten(1)

    def merge_noise(self, noise: Tensor) -> Tensor:
        """One standard normal value a sample that acts as ``noise``, [B, samples, harmonics], would.

        All harmonics of a sample carry noise of the same amplitude and meet in the linear layer, so only
        their weighted sum matters.
        """
        return noise @ F.normalize(self.l_linear.weight[0], dim=0)

    def _turns_per_frame(self, f0: Tensor, rows: Rows) -> Tensor:
        harmonics = torch.arange(1, self.num_sines + 1, device=f0.device, dtype=torch.float64)
        per_sample = (f0.double()[..., None] * harmonics / self.config.sample_rate) % 1
        turns = per_sample * self.config.hop
        return rows.trim()(turns.transpose(1, 2)).transpose(1, 2)

    def _accumulate(self, turns: Tensor, carry: PhaseCarry | None) -> Tensor:
        if carry is None:
            return turns.cumsum(1) % 1
        frames = torch.arange(turns.shape[1], device=turns.device)
        done = frames <= carry.frame[:, None]
        return (turns.masked_fill(done[..., None], 0).cumsum(1) + carry.cycles[:, None]) % 1

    def _sines(self, turns: Tensor, cycles: Tensor) -> Tensor:
        """[B, T, hop, harmonics] float32."""
        speed = F.pad(turns.float(), (0, 0, 0, 1))
        before, after = speed[:, :-1].clone(), speed[:, 1:]
        before[:, 0] = 0
        phase = cycles.float()[:, :, None] + self.offsets.clamp(max=0) * before[:, :, None]
        phase = phase + self.offsets.clamp(min=0) * after[:, :, None]
        return torch.sin(2 * pi * (phase - phase.round()))

    def _noise_level(self, voiced: Tensor) -> Tensor:
        return self._noise_amplitude(voiced) * self.l_linear.weight.norm()

    def _noise_amplitude(self, voiced: Tensor) -> Tensor:
        unvoiced = self.config.sine_amplitude * UNVOICED_NOISE
        return torch.where(voiced, self.config.noise_std, unvoiced)
