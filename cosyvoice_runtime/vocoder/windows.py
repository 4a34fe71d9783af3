"""Stretches of several utterances, each with enough around it, as one call of the vocoder's networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint.config import VocoderConfig
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.transfer import moved
from cosyvoice_runtime.vocoder.geometry import VocoderContext, context
from cosyvoice_runtime.vocoder.hift import HiFT
from cosyvoice_runtime.vocoder.rows import Rows
from cosyvoice_runtime.vocoder.source import NoiseMark, PhaseCarry, UtteranceNoise


@dataclass(frozen=True)
class Window:
    """Frames of one row of a batch: context already emitted, frames to emit, context still to come."""

    past: int
    emit: int
    frames: int
    """All frames whose F0 is computed; those beyond the mel received so far repeat its last frame."""
    decoded: int
    """Frames that the decoder reads, counted like ``frames`` from the window's start."""
    guessed: bool = False
    """Some of the frames still to come are a guess: the newest one repeated."""

    @property
    def end(self) -> int:
        """First frame that is not emitted yet."""
        return self.past + self.emit


@dataclass(frozen=True)
class VocoderMark:
    """Where an utterance was."""

    attributes: Mapping[str, Any]
    noise: NoiseMark | None


class VocoderState:
    """One utterance's position in the vocoder; its size does not grow with the utterance.

    Attributes:
        lookahead: frames held back behind the newest mel frame. May be changed between chunks.
        noise: the utterance's noise, or None.
        received: mel frames taken in.
        emitted: mel frames turned into samples.
        is_last: no more mel will come.
        mel: [bins, n] float32, frames from ``emitted`` less the left context up to ``received``.
        source: [hop * m] float32, samples of the emitted frames among them.
        f0, cycles: F0 (float64) and phase ([harmonics] float64, turns) used for frame ``emitted``. They
            must not change: the last emitted samples were interpolated towards them.
        continuation: float32, how the emitted samples would have gone on; None if they were exact.
    """

    def __init__(
        self,
        config: VocoderConfig,
        noise: UtteranceNoise | None = None,
        lookahead: int | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        """Start of an utterance.

        Args:
            lookahead: mel frames, 0 to ``context(config).lookahead``, which is the default and exact.

        Raises:
            InvalidInput: a lookahead outside these bounds.
        """
        self.context: VocoderContext = context(config)
        self.lookahead = _checked(lookahead, self.context.lookahead)
        self.noise = noise
        self.received = self.emitted = 0
        self.is_last = False
        self.mel = torch.zeros(config.mel_bins, 0, device=device)
        self.source = torch.zeros(0, device=device)
        self.f0 = torch.zeros((), dtype=torch.float64, device=device)
        self.cycles = torch.zeros(config.num_harmonics + 1, dtype=torch.float64, device=device)
        self.continuation: Tensor | None = None

    def check(self, mel: Tensor) -> None:
        """Raise ValueError unless mel can be taken in now."""
        if self.is_last:
            raise ValueError("mel after the last chunk of an utterance")
        if mel.dim() != 2 or mel.shape[0] != self.mel.shape[0]:
            raise ValueError(f"mel of shape {tuple(mel.shape)}, expected ({self.mel.shape[0]}, frames)")

    def take(self, mel: Tensor, is_last: bool) -> None:
        """Append mel [bins, n]."""
        self.mel = torch.cat([self.mel, mel.float()], dim=1)
        self.received += mel.shape[1]
        self.is_last = is_last

    def window(self, more: bool = False) -> Window:
        """What to compute next. Nothing is to be emitted if ``emit`` is 0.

        Args:
            more: mel that is here already comes next, so that nothing has to be guessed.
        """
        past = min(self.emitted, self.context.left)
        pending = self.received - self.emitted
        if self.is_last:
            return Window(past, pending, past + pending, past + pending)
        lookahead = self.context.lookahead if more else self.lookahead
        end = past + max(0, pending - lookahead)
        guessed = lookahead < self.context.lookahead
        return Window(past, end - past, end + self.context.lookahead, end + self.context.right, guessed)

    def mark(self) -> VocoderMark:
        """Where the utterance is, for :meth:`rewind`."""
        return VocoderMark(dict(vars(self)), None if self.noise is None else self.noise.mark())

    def rewind(self, mark: VocoderMark) -> None:
        """Be again where it was. Tensors of a state are replaced and never overwritten."""
        vars(self).update(mark.attributes)
        if self.noise is not None and mark.noise is not None:
            self.noise.rewind(mark.noise)

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        tensors = [self.mel, self.source, self.f0, self.cycles]
        if self.continuation is not None:
            tensors.append(self.continuation)
        return sum(tensor.nbytes for tensor in tensors) + (self.noise.nbytes if self.noise is not None else 0)


def _checked(lookahead: int | None, exact: int) -> int:
    if lookahead is None:
        return exact
    if not 0 <= lookahead <= exact:
        raise InvalidInput("lookahead", lookahead, f"a number of mel frames from 0 to {exact}")
    return lookahead


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
        """Row ends for the F0 predictor and source, and for the decoder; one graph serves all lengths."""
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
