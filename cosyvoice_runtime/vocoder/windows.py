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


@dataclass(frozen=True, eq=False)
class WindowInputs:
    """Row i of each tensor starts at the i-th window's first frame; rows without an utterance are zeros.

    Attributes:
        numbers: [B, 4] int64; for each row: frames whose F0 is computed, frames that the decoder reads, the
            frame at which the phase goes on (-1: from the start), samples of the source that are known.
        mel: [B, bins, W] float32.
        noise: [B, hop * W] float32.
        source: [B, hop * W] float32, of emitted frames as it was used.
        f0, cycles: float64, [B] and [B, harmonics], of the frame at which the phase goes on.
    """

    numbers: Tensor
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
        """So many rows of so many frames, the first of them of these utterances."""
        config, device = hift.config, hift.device
        samples = config.hop * width
        inputs = cls(
            numbers=torch.zeros(rows, 4, dtype=torch.int64, device=device),
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
        numbers = torch.tensor([width, width, -1, 0]).repeat(len(self.numbers), 1)
        noise = torch.zeros(rows, hop * width)
        for row, (state, window) in enumerate(zip(states, windows, strict=True)):
            known = state.mel.shape[1]
            self.mel[row, :, :known] = state.mel
            self.mel[row, :, known : window.frames] = state.mel[:, -1:]
            self.mel[row, :, window.frames :] = 0
            self.source[row, : len(state.source)] = state.source
            numbers[row] = torch.tensor([window.frames, window.decoded, window.past or -1, len(state.source)])
            if state.noise is not None:
                fresh = state.noise.peek(window.frames - window.past)
                noise[row, hop * window.past : hop * window.frames] = fresh
        self.numbers.copy_(moved(numbers, self.numbers.device))
        self.noise[:rows] = moved(noise, self.noise.device)
        if rows:
            torch.stack([state.f0 for state in states], out=self.f0[:rows])
            torch.stack([state.cycles for state in states], out=self.cycles[:rows])

    def rows(self) -> tuple[Rows, Rows]:
        """Of F0 and source, and of the decoder, whatever their lengths are."""
        width = self.mel.shape[2]
        return Rows(self.numbers[:, 0], width), Rows(self.numbers[:, 1], width)


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
    _, _, go_on, known = inputs.numbers.unbind(1)
    f0 = hift.f0_predictor(inputs.mel, rows)
    f0 = torch.where(frames == go_on[:, None], inputs.f0[:, None], f0)
    carry = PhaseCarry(go_on, inputs.cycles, inputs.f0)
    source, cycles = hift.m_source(f0, inputs.noise, rows, carry)
    source = torch.where(samples < known[:, None], inputs.source, source)
    heard = source[:, : hift.config.hop * decoded.width]
    wave = hift.decoder(inputs.mel[..., : decoded.width], heard, decoded)
    return WindowOutputs(f0, cycles, source, wave)
