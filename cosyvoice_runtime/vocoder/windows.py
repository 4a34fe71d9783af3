"""Stretches of several utterances, each with enough around it, as one call of the vocoder's networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from cosyvoice_runtime.transfer import Upload, move
from cosyvoice_runtime.vocoder.carry import VocoderCarry
from cosyvoice_runtime.vocoder.hift import HiFT
from cosyvoice_runtime.vocoder.rows import Rows
from cosyvoice_runtime.vocoder.source import FROM_THE_START, PhaseCarry
from cosyvoice_runtime.wave.context import context
from cosyvoice_runtime.wave.vocoder_state import Carry, VocoderState, Window


class WindowLengths(NamedTuple):
    """The whole numbers of every row, [B] int64, counted from the window's start; columns of one tensor.

    Attributes:
        frames: whose F0 is computed.
        decoded: frames that the decoder reads.
        past: frames emitted before.
        end: first frame that is not emitted yet.
        held: frames of the carried mel.
        received: frames of mel there are.
    """

    frames: Tensor
    decoded: Tensor
    past: Tensor
    end: Tensor
    held: Tensor
    received: Tensor

    @staticmethod
    def row(state: VocoderState, window: Window) -> tuple[int, ...]:
        """Of an utterance."""
        received = state.held + state.fresh.shape[1]
        return window.frames, window.decoded, window.past, window.end, state.held, received

    @staticmethod
    def idle_row(width: int) -> tuple[int, ...]:
        """Of a row without an utterance."""
        return width, width, 0, 0, 0, width

    @classmethod
    def unpack(cls, packed: Tensor) -> WindowLengths:
        """Views of ``[B, 6]``."""
        return cls(*packed.unbind(1))


class WindowInputs:
    """Row i of each tensor starts at the i-th window's first frame; rows without an utterance hold anything.

    Attributes:
        packed: [B, 6] int64, :class:`WindowLengths` in one tensor.
        fresh: [B, W, bins] float32, mel taken in since the last window.
        noise: [B, hop * W] float32, from the first frame that is to be emitted on.
        carried: of each row.
    """

    def __init__(self, hift: HiFT, rows: int, width: int) -> None:
        config, device = hift.config, hift.device
        self.packed = torch.zeros(rows, len(WindowLengths._fields), dtype=torch.int64, device=device)
        self.fresh = torch.zeros(rows, width, config.mel_bins, device=device)
        self.noise = torch.zeros(rows, config.hop * width, device=device)
        self.carried = VocoderCarry.idle(config, rows, device)
        self._noise = Upload(self.noise)
        self.fill_([], [])

    def fill_(self, states: Sequence[VocoderState], windows: Sequence[Window]) -> None:
        """Take the first rows from utterances; those after them are without one from now on."""
        rows, width = self.fresh.shape[:2]
        taken = [WindowLengths.row(*of_row) for of_row in zip(states, windows, strict=True)]
        idle = [WindowLengths.idle_row(width)] * (rows - len(taken))
        move(torch.tensor([*taken, *idle]), self.packed)
        if not states:
            return
        frames = _side_by_side([state.fresh.T for state in states])
        self.fresh[: len(states), : frames.shape[1]] = frames
        self.carried.fill_([_own(state.carried) for state in states])
        self._fill_noise(states, windows)

    def _fill_noise(self, states: Sequence[VocoderState], windows: Sequence[Window]) -> None:
        host, hop = self._noise.host().numpy(), self.noise.shape[1] // self.fresh.shape[1]
        for row, (state, window) in enumerate(zip(states, windows, strict=True)):
            if state.noise is None:
                host[row] = 0
            else:
                fresh = state.noise.peek(window.frames - window.past)
                host[row, hop * window.past : hop * window.frames] = fresh.numpy()
        self._noise.send(len(states))

    @property
    def lengths(self) -> WindowLengths:
        return WindowLengths.unpack(self.packed)

    def rows(self) -> tuple[Rows, Rows]:
        """Row ends for the F0 predictor and source, and for the decoder; one graph serves all lengths."""
        width = self.fresh.shape[1]
        return Rows(self.lengths.frames, width), Rows(self.lengths.decoded, width)

    def mel(self) -> Tensor:
        """[B, bins, W]: what is carried, what is fresh, and the newest frame repeated to the row's end."""
        lengths, waiting = self.lengths, self.carried.mel.shape[2]
        frame = torch.arange(self.fresh.shape[1], device=self.fresh.device)
        known = torch.minimum(frame, lengths.received[:, None] - 1)
        held = lengths.held[:, None]
        place = torch.where(known < held, known, known - held + waiting)
        both = torch.cat([self.carried.mel, self.fresh.transpose(1, 2)], dim=2)
        mel = _picked(both, place[:, None])
        return mel.masked_fill_((frame >= lengths.frames[:, None])[:, None], 0)


def _own(carried: Carry) -> VocoderCarry:
    assert isinstance(carried, VocoderCarry)
    return carried


def _side_by_side(mels: Sequence[Tensor]) -> Tensor:
    """[B, longest, bins] of [n, bins] each."""
    if len({len(mel) for mel in mels}) == 1:
        return torch.stack(list(mels))
    return pad_sequence(list(mels), batch_first=True)


def _picked(signal: Tensor, places: Tensor) -> Tensor:
    """Values along the last axis at int64 places that are the same for axis 1."""
    return signal.gather(-1, places.expand(*signal.shape[:-1], -1))


class WindowOutputs(NamedTuple):
    """
    Attributes:
        wave: [B, hop * W] float32.
        carried: to the next window.
    """

    wave: Tensor
    carried: VocoderCarry

    def clone(self) -> WindowOutputs:
        """In memory of its own."""
        return WindowOutputs(self.wave.clone(), self.carried.clone())


def compute_windows(hift: HiFT, inputs: WindowInputs, rows: Rows, decoded: Rows) -> WindowOutputs:
    """
    Args:
        rows: of F0 and source; ``decoded``: of the decoder, which may be narrower, and so is then the wave.
    """
    frames = torch.arange(rows.width, device=rows.device)
    samples = torch.arange(hift.config.hop * rows.width, device=rows.device)
    past, carried, mel = inputs.lengths.past, inputs.carried, inputs.mel()
    go_on = torch.where(past > 0, past, FROM_THE_START)
    f0 = hift.f0_predictor(mel, rows)
    f0 = torch.where(frames == go_on[:, None], carried.f0[:, None], f0)
    source, cycles = hift.m_source(f0, inputs.noise, rows, PhaseCarry(go_on, carried.cycles, carried.f0))
    used = F.pad(carried.source, (0, source.shape[1] - carried.source.shape[1]))
    source = torch.where(samples < hift.config.hop * past[:, None], used, source)
    heard = source[:, : hift.config.hop * decoded.width]
    wave = hift.decoder(mel[..., : decoded.width], heard, decoded)
    return WindowOutputs(wave, _carry_on(hift, inputs, mel, source, f0, cycles))


def _carry_on(
    hift: HiFT, inputs: WindowInputs, mel: Tensor, source: Tensor, f0: Tensor, cycles: Tensor
) -> VocoderCarry:
    """What the next window takes over: frames from the emitted ones on that it looks back on."""
    end, hop = inputs.lengths.end[:, None], hift.config.hop
    first = (end - context(hift.config).left).clamp(min=0)
    frames, samples = (
        (start + torch.arange(size, device=end.device)).clamp(max=most - 1)
        for start, size, most in (
            (first, inputs.carried.mel.shape[2], mel.shape[2]),
            (hop * first, inputs.carried.source.shape[1], source.shape[1]),
        )
    )
    following = end.clamp(max=f0.shape[1] - 1)
    return VocoderCarry(
        mel=_picked(mel, frames[:, None]),
        source=_picked(source, samples),
        f0=_picked(f0, following).squeeze(1),
        cycles=_picked(cycles.transpose(1, 2), following[:, None]).squeeze(2),
    )
