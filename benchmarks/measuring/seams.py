"""Steps of loudness in speech, at the places where its chunks join and everywhere else.

The step at a place is the absolute difference, in dB, of two levels: of the 20 ms of samples that begin there
and of the 20 ms that end there. A level is the mean square relative to full scale, and at least -45 dB, what
the contract takes for audible. A place counts where both windows lie in the answer and one of them is louder
than that, so that silence after silence is no smooth place. The other places are every 20 ms of the same
answer whose windows touch no join. Speech itself makes steps of some dB: a seam is heard where its steps are
larger than those.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import mean, stdev

import numpy as np

from cosyvoice_runtime.arrays import Array, Floats
from measuring.audible import LOUD
from measuring.figures import Figures

WINDOW_S = 0.02
"""The length of the windows of which steps are measured, that of the contract's audible ones."""


@dataclass
class Steps:
    """The steps of some answers, in dB: at joins and at all other places."""

    at_joins: list[float] = field(default_factory=list)
    elsewhere: list[float] = field(default_factory=list)

    def add(self, samples: Floats, joins: Sequence[int], rate: int) -> None:
        """Measure one answer.

        Args:
            samples: float32 ``[n]`` in [-1, 1].
            joins: numbers of the samples with which a chunk begins, the first chunk's aside.
        """
        width = round(WINDOW_S * rate)
        grid = np.arange(width, len(samples), width)
        apart = np.abs(grid[:, None] - np.asarray(joins, int)[None]) >= 2 * width
        self.at_joins += _steps(samples, joins, width)
        self.elsewhere += _steps(samples, grid[apart.all(axis=1)], width)

    def figures(self) -> Figures:
        """Means in dB, None without a place, and the standard error of the one at joins."""
        at_joins, elsewhere = self.at_joins, self.elsewhere
        error = stdev(at_joins) / len(at_joins) ** 0.5 if len(at_joins) > 1 else None
        return {
            "joins": len(at_joins),
            "at_joins_db": round(mean(at_joins), 3) if at_joins else None,
            "standard_error_db": None if error is None else round(error, 3),
            "elsewhere_db": round(mean(elsewhere), 3) if elsewhere else None,
        }


def _steps(samples: Floats, places: Iterable[int] | Array, width: int) -> list[float]:
    """The steps at those of the places that count."""
    energy = np.concatenate([[0.0], np.cumsum(np.square(samples, dtype=np.float64))])
    whole = np.asarray([place for place in places if width <= place <= len(samples) - width], int)
    powers = energy[whole] - energy[whole - width], energy[whole + width] - energy[whole]
    before, after = (10 * np.log10(np.maximum(power / width, LOUD**2)) for power in powers)
    audible = np.maximum(*powers) / width > LOUD**2
    found: list[float] = np.abs(after - before)[audible].tolist()
    return found
