"""The noise in the source of CosyVoice3's vocoder: one table of uniform numbers, the same for all utterances.

The published code fills a table of 300 s when it builds its networks, after ``torch.manual_seed(0)`` and all
that is drawn until then. Numbers are added as they are asked for here, in the same order, so that neither
the memory for 300 s nor their end is met.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock

import torch
from torch import Tensor

SOLVER_NOISE = (80, 15_000)
"""First drawn: the start noise of the flow's solver."""
TOKEN_TABLE = (6561, 80)
"""Then the flow's token table, normal; then, uniform, weights and biases of the layers below."""
LAYERS = ((80, 192), (512, 80 * 4), *[(512, 512 * 3)] * 4, (1, 512))
"""Outputs and fan-in of speaker projection, F0 predictor and its classifier, in the order they are built."""
STEP = 240_000
"""Samples that are added at a time: 10 s."""


def uniform_noise(columns: int, samples: int = STEP) -> Iterator[Tensor]:
    """The table, [samples, columns] float32 at a time, without end."""
    generator = torch.Generator().manual_seed(0)
    torch.randn(*SOLVER_NOISE, generator=generator)
    torch.randn(*TOKEN_TABLE, generator=generator)
    for outputs, fan_in in LAYERS:
        torch.rand(outputs * fan_in, generator=generator)
        torch.rand(outputs, generator=generator)
    torch.rand(columns, generator=generator)  # an initial phase, which changes nothing
    while True:
        yield torch.rand(samples, columns, generator=generator)


class NoiseTable:
    """One value for each sample: the row's numbers, weighed as the source merges them. Safe for threads.

    Args:
        weight: [harmonics] float32, of the source's linear layer.
    """

    def __init__(self, weight: Tensor) -> None:
        self._rows = uniform_noise(len(weight))
        self._weight = weight
        self._values = torch.empty(0)
        self._lock = Lock()

    def __getitem__(self, samples: slice) -> Tensor:
        """Values of a range of samples, float32."""
        with self._lock:
            while len(self._values) < samples.stop:
                self._values = torch.cat([self._values, next(self._rows) @ self._weight])
        return self._values[samples]


class FixedNoise:
    """An utterance's place in the table."""

    nbytes = 0

    def __init__(self, table: NoiseTable, hop: int) -> None:
        self._table = table
        self._hop = hop
        self._frame = 0

    def peek(self, frames: int) -> Tensor:
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
