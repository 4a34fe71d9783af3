"""Stretches of several utterances, each with enough around it, as one call of the vocoder's networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from cosyvoice_runtime.transfer import moved
from cosyvoice_runtime.vocoder.hift import HiFT
from cosyvoice_runtime.vocoder.rows import Rows
from cosyvoice_runtime.vocoder.source import PhaseCarry
from cosyvoice_runtime.vocoder.state import VocoderState, Window

FROM_THE_START = -1
"""In place of the frame at which the phase goes on, where nothing has been emitted yet."""


class WindowLengths(NamedTuple):
    """The whole numbers of every row, [B] int64; they travel as columns of one tensor.

    Attributes:
        frames: whose F0 is computed.
        decoded: frames that the decoder reads.
        go_on: the frame at which the phase goes on, or ``FROM_THE_START``.
        known: samples of the source that are known.
    """

    frames: Tensor
    decoded: Tensor
    go_on: Tensor
    known: Tensor

    @classmethod
    def of(
        cls, rows: int, width: int, states: Sequence[VocoderState], windows: Sequence[Window]
    ) -> WindowLengths:
        """Of a call with ``rows`` rows, the first of them of these utterances."""
        idle = [(width, width, FROM_THE_START, 0)] * (rows - len(windows))
        taken = [
            (window.frames, window.decoded, window.past or FROM_THE_START, len(state.source))
            for state, window in zip(states, windows, strict=True)
        ]
        return cls.unpack(torch.tensor([*taken, *idle]))

    def pack(self) -> Tensor:
        """[B, 4]."""
        return torch.stack(self, dim=1)

    @classmethod
    def unpack(cls, packed: Tensor) -> WindowLengths:
        """Views of a packed tensor."""
        return cls(*packed.unbind(1))


@dataclass(frozen=True, eq=False)
class WindowInputs:
    """Row i of each tensor starts at the i-th window's first frame; rows without an utterance are zeros.

    Attributes:
        packed: [B, 4] int64, :class:`WindowLengths` in one tensor.
        mel: [B, bins, W] float32.
        noise: [B, hop * W] float32.
        source: [B, hop * W] float32, of emitted frames as it was used.
        f0, cycles: float64, [B] and [B, harmonics], of the frame at which the phase goes on.
    """

    packed: Tensor
    mel: Tensor
    noise: Tensor
    source: Tensor
    f0: Tensor
    cycles: Tensor

    @classmethod
    def of(
        cls,
        hift: HiFT,
        rows: int,
        width: int,
        states: Sequence[VocoderState] = (),
        windows: Sequence[Window] = (),
    ) -> WindowInputs:
        """``rows`` rows of ``width`` frames, the first of them of these utterances."""
        config, device = hift.config, hift.device
        samples = config.hop * width
        inputs = cls(
            packed=torch.zeros(rows, 4, dtype=torch.int64, device=device),
            mel=torch.zeros(rows, config.mel_bins, width, device=device),
            noise=torch.zeros(rows, samples, device=device),
            source=torch.zeros(rows, samples, device=device),
            f0=torch.zeros(rows, dtype=torch.float64, device=device),
            cycles=torch.zeros(rows, config.num_harmonics + 1, dtype=torch.float64, device=device),
        )
        inputs.fill_(states, windows)
        return inputs

    def fill_(self, states: Sequence[VocoderState], windows: Sequence[Window]) -> None:
        """Take the first rows from utterances; those after them are without one from now on."""
        width, rows = self.mel.shape[2], len(states)
        hop = self.noise.shape[1] // width
        for values in (self.mel, self.noise, self.f0, self.cycles):
            values[rows:] = 0
        lengths = WindowLengths.of(len(self.packed), width, states, windows)
        noise = torch.zeros(rows, hop * width)
        for row, (state, window) in enumerate(zip(states, windows, strict=True)):
            known = state.mel.shape[1]
            self.mel[row, :, :known] = state.mel
            self.mel[row, :, known : window.frames] = state.mel[:, -1:]
            self.mel[row, :, window.frames :] = 0
            self.source[row, : len(state.source)] = state.source
            if state.noise is not None:
                fresh = state.noise.peek(window.frames - window.past)
                noise[row, hop * window.past : hop * window.frames] = fresh
        self.packed.copy_(moved(lengths.pack(), self.packed.device))
        self.noise[:rows] = moved(noise, self.noise.device)
        if rows:
            torch.stack([state.f0 for state in states], out=self.f0[:rows])
            torch.stack([state.cycles for state in states], out=self.cycles[:rows])

    @property
    def lengths(self) -> WindowLengths:
        return WindowLengths.unpack(self.packed)

    def rows(self) -> tuple[Rows, Rows]:
        """Of F0 and source, and of the decoder, whatever their lengths are."""
        width = self.mel.shape[2]
        return Rows(self.lengths.frames, width), Rows(self.lengths.decoded, width)


class WindowOutputs(NamedTuple):
    """
    Attributes:
        f0, cycles: [B, W] and [B, W, harmonics] float64.
        source, wave: [B, hop * W] float32.
    """

    f0: Tensor
    cycles: Tensor
    source: Tensor
    wave: Tensor


def compute_windows(hift: HiFT, inputs: WindowInputs, rows: Rows, decoded: Rows) -> WindowOutputs:
    """
    Args:
        rows: of F0 and source; ``decoded``: of the decoder, which may be narrower, and so is then the wave.
    """
    frames = torch.arange(rows.width, device=rows.device)
    samples = torch.arange(hift.config.hop * rows.width, device=rows.device)
    _, _, go_on, known = inputs.lengths
    f0 = hift.f0_predictor(inputs.mel, rows)
    f0 = torch.where(frames == go_on[:, None], inputs.f0[:, None], f0)
    carry = PhaseCarry(go_on, inputs.cycles, inputs.f0)
    source, cycles = hift.m_source(f0, inputs.noise, rows, carry)
    source = torch.where(samples < known[:, None], inputs.source, source)
    heard = source[:, : hift.config.hop * decoded.width]
    wave = hift.decoder(inputs.mel[..., : decoded.width], heard, decoded)
    return WindowOutputs(f0, cycles, source, wave)
