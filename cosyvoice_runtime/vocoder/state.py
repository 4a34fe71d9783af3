"""What the vocoder remembers of one utterance between chunks, and the window its next chunk needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint.config import VocoderConfig
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.vocoder.geometry import VocoderContext, context
from cosyvoice_runtime.vocoder.noise import NoiseMark, SourceNoise


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
        """First frame that stays unsaid."""
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
        f0, cycles: F0 (float64) and phase ([harmonics] float64, turns) used for frame ``emitted``, whose
            first half is the far end of an interpolation that emitted samples already heard.
        continuation: float32, how the emitted samples would have gone on; None if they were exact.
    """

    def __init__(
        self,
        config: VocoderConfig,
        noise: SourceNoise | None = None,
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
