"""The noise in the source of CosyVoice3's vocoder: one table of uniform numbers, the same for all utterances.

The published code fills a table of 300 s when it builds its networks, after ``torch.manual_seed(0)`` and all
that is drawn until then. Here numbers are added as they are asked for, in the same order, so that neither
the memory for 300 s nor their end is met.
"""

from __future__ import annotations

from typing import Any, Protocol

SOLVER_NOISE = (80, 15_000)
"""First drawn: the start noise of the flow's solver."""
TOKEN_TABLE = (6561, 80)
"""Then the flow's token table, normal; then, uniform, weights and biases of the layers below."""
LAYERS = ((80, 192), (512, 80 * 4), *[(512, 512 * 3)] * 4, (1, 512))
"""Outputs and fan-in of speaker projection, F0 predictor and its classifier, in the order they are built."""
STEP = 240_000
"""Samples that are added at a time: 10 s."""


class NoiseValues(Protocol):
    """A table with a value for each sample."""

    def __getitem__(self, samples: slice) -> Any:
        """Values of a range of samples, float32."""


class FixedNoise:
    """An utterance's place in the table."""

    nbytes = 0

    def __init__(self, table: NoiseValues, hop: int) -> None:
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
