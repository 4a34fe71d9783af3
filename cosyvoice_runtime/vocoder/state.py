"""One utterance's position in the vocoder, and what it computes next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol

import numpy as np

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.checkpoint.config_vocoder import VocoderConfig
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.vocoder.geometry import VocoderContext, context

SOLVER_NOISE = (80, 15_000)
"""First drawn: the start noise of the flow's solver."""
TOKEN_TABLE = (6561, 80)
"""Then the flow's token table, normal; then, uniform, weights and biases of the layers below."""
LAYERS = ((80, 192), (512, 80 * 4), *[(512, 512 * 3)] * 4, (1, 512))
"""Outputs and fan-in of speaker projection, F0 predictor and its classifier, in the order they are built."""
STEP = 240_000
"""Samples that are added at a time: 10 s."""


class NoiseTable:
    """One value for each sample: the row's uniform numbers, weighed as the source merges them.

    Threads may share it.

    Args:
        values: the table's values, float32 ``[n]`` at a time, without end.
    """

    def __init__(self, values: Iterator[Floats]) -> None:
        self._more = values
        self._values = np.zeros(0, np.float32)
        self._lock = Lock()

    def __getitem__(self, samples: slice) -> Floats:
        """Values of a range of samples, float32."""
        with self._lock:
            while len(self._values) < samples.stop:
                self._values = np.concatenate([self._values, next(self._more)])
        return self._values[samples]


class FixedNoise:
    """The position of one utterance in the table."""

    nbytes = 0

    def __init__(self, table: NoiseTable, hop: int) -> None:
        self._table = table
        self._hop = hop
        self._frame = 0

    def peek(self, frames: int) -> Any:
        """The next frames, [hop * frames] float32, without using them up."""
        return self._table[self._hop * self._frame : self._hop * (self._frame + frames)]

    def skip(self, frames: int) -> None:
        """Use up frames."""
        self._frame += frames

    def mark(self) -> int:
        """Where it is, for :meth:`rewind`."""
        return self._frame

    def rewind(self, mark: int) -> None:
        """Be again where it was: the same frames come next."""
        self._frame = mark


NoiseMark = Any
"""Where an utterance's noise is; each kind of noise knows its own."""


class UtteranceNoise(Protocol):
    """One utterance's noise: the same sequence of frames however it is asked for."""

    def peek(self, frames: int) -> Any:
        """The next frames, ``[hop * frames]`` float32 of the host, without using them up."""

    def skip(self, frames: int) -> None:
        """Use up frames."""

    def mark(self) -> NoiseMark:
        """Where it is, for :meth:`rewind`."""

    def rewind(self, mark: NoiseMark) -> None:
        """Be again where it was: the same frames come next."""

    @property
    def nbytes(self) -> int:
        """Memory held for frames already drawn."""


class Carry(Protocol):
    """State that a window leaves to the next."""

    @property
    def mel(self) -> Any:
        """``[bins, n]`` float32, the newest frames that came."""

    @property
    def no_mel(self) -> Any:
        """``[bins, 0]`` float32, a mel that no frame has come of yet."""

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""


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
        carried: what the last window left.
        held: frames of the carried mel.
        fresh: ``[bins, n]`` float32, frames taken in since.
        continuation: float32, how the emitted samples would have gone on; None if they were exact.
    """

    def __init__(
        self,
        config: VocoderConfig,
        carried: Carry,
        noise: UtteranceNoise | None = None,
        lookahead: int | None = None,
    ) -> None:
        """Start of an utterance.

        Args:
            carried: zeros.
            lookahead: mel frames, 0 to ``context(config).lookahead``, which is the default and exact.

        Raises:
            InvalidInput: a lookahead outside these bounds.
        """
        self.context: VocoderContext = context(config)
        self.lookahead = _checked(lookahead, self.context.lookahead)
        self.noise = noise
        self.received = self.emitted = self.held = 0
        self.is_last = False
        self.carried = carried
        self.fresh = carried.no_mel
        self.continuation: Any = None

    def check(self, mel: Any) -> None:
        """Raise ValueError unless mel can be taken in now."""
        if self.is_last:
            raise ValueError("mel after the last chunk of an utterance")
        bins = self.fresh.shape[0]
        if len(mel.shape) != 2 or mel.shape[0] != bins:
            raise ValueError(f"mel of shape {tuple(mel.shape)}, expected ({bins}, frames)")

    def take(self, mel: Any, is_last: bool, joined: Callable[[Sequence[Any]], Any]) -> None:
        """Append mel ``[bins, n]`` float32."""
        if not self.fresh.shape[1]:
            self.fresh = mel
        elif mel.shape[1]:
            self.fresh = joined([self.fresh, mel])
        self.received += mel.shape[1]
        self.is_last = is_last

    def window(self, more: bool = False) -> Window:
        """The next window to compute. Nothing is to be emitted if ``emit`` is 0.

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
        """Be again where it was. Arrays of a state are replaced and never overwritten."""
        vars(self).update(mark.attributes)
        if self.noise is not None and mark.noise is not None:
            self.noise.rewind(mark.noise)

    def move(self, emitted: int, carried: Carry) -> None:
        """Go on after a window that emitted so many frames."""
        end = min(self.emitted, self.context.left) + emitted
        self.held += self.fresh.shape[1] - max(0, end - self.context.left)
        self.emitted += emitted
        if self.noise is not None:
            self.noise.skip(emitted)
        self.carried, self.fresh = carried, carried.no_mel

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        own = self.carried.nbytes + self.fresh.nbytes
        if self.continuation is not None:
            own += self.continuation.nbytes
        return int(own) + (self.noise.nbytes if self.noise is not None else 0)


def _checked(lookahead: int | None, exact: int) -> int:
    if lookahead is None:
        return exact
    if not 0 <= lookahead <= exact:
        raise InvalidInput("lookahead", lookahead, f"a number of mel frames from 0 to {exact}")
    return lookahead
