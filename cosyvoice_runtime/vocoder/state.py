"""One utterance's position in the vocoder, and what it computes next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.checkpoint.config import VocoderConfig
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.onnx.torch_random import BLOCK
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
        self._table, self._hop = table, hop
        self._frame = 0

    def peek(self, frames: int) -> Floats:
        """The next frames, ``[hop * frames]`` float32, without using them up."""
        return self._table[self._hop * self._frame : self._hop * (self._frame + frames)]

    def skip(self, frames: int) -> None:
        """Use up frames."""
        self._frame += frames

    def mark(self) -> int:
        """The position, for :meth:`rewind`."""
        return self._frame

    def rewind(self, mark: int) -> None:
        """Return to a position: the same frames come next."""
        self._frame = mark


class SourceNoise:
    """Standard normal noise of one utterance, the same sequence of frames however it is asked for.

    It is drawn on the CPU, so that every device hears the same, from a generator of its own.

    Args:
        normal: draws a number of values that is a multiple of ``BLOCK``, float32 ``[n]``.
    """

    def __init__(self, hop: int, normal: Callable[[int], Floats]) -> None:
        self.hop, self._normal = hop, normal
        self._held = np.zeros(0, np.float32)
        self._first = self._next = 0
        self._marked: int | None = None

    def peek(self, frames: int) -> Floats:
        """The next frames, ``[hop * frames]`` float32, without using them up."""
        missing = self._next + frames - self._first - len(self._held) // self.hop
        if missing > 0:
            self._let_go(self._next if self._marked is None else min(self._marked, self._next))
            self._held = np.concatenate([self._held, self._fresh(missing)])
        start = self.hop * (self._next - self._first)
        return self._held[start : start + self.hop * frames]

    def skip(self, frames: int) -> None:
        """Use up frames."""
        self.peek(frames)
        self._next += frames
        if self._marked is None:
            self._let_go(self._next)

    def mark(self) -> int:
        """The position, for :meth:`rewind`, which knows it until the next mark."""
        self._marked = self._next
        return self._next

    def rewind(self, mark: int) -> None:
        """Return to a position: the same frames come next."""
        self._next = mark

    @property
    def nbytes(self) -> int:
        """Memory held for frames already drawn."""
        return self._held.nbytes

    def _let_go(self, frame: int) -> None:
        """Drop the frames before this one."""
        self._held = self._held[self.hop * (frame - self._first) :]
        self._first = frame

    def _fresh(self, frames: int) -> Floats:
        whole_blocks = -(-self.hop // BLOCK) * BLOCK
        drawn = self._normal(frames * whole_blocks).reshape(frames, whole_blocks)
        return drawn[:, : self.hop].reshape(-1)


UtteranceNoise = SourceNoise | FixedNoise
Carry = Any
"""State that a window leaves to the next, of the runtime's own kind: ``mel`` ``[bins, n]`` float32, the
newest frames that came; ``no_mel`` ``[bins, 0]``; ``nbytes``."""
VocoderMark = tuple[dict[str, Any], int | None]
"""An earlier position of an utterance, for :meth:`VocoderState.rewind`."""


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
        """The utterance's position, for :meth:`rewind`."""
        return dict(vars(self)), None if self.noise is None else self.noise.mark()

    def rewind(self, mark: VocoderMark) -> None:
        """Return to a position. Arrays of a state are replaced and never overwritten."""
        attributes, drawn = mark
        vars(self).update(attributes)
        if self.noise is not None and drawn is not None:
            self.noise.rewind(drawn)

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
