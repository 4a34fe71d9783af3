"""The table of :mod:`cosyvoice_runtime.vocoder.noise_table` from torch's generator."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cosyvoice_runtime.vocoder.noise_table import LAYERS, SOLVER_NOISE, STEP, TOKEN_TABLE


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
        self._values = np.zeros(0, np.float32)
        self._lock = Lock()

    def __getitem__(self, samples: slice) -> npt.NDArray[np.float32]:
        """Values of a range of samples."""
        with self._lock:
            while len(self._values) < samples.stop:
                added = (next(self._rows) @ self._weight).numpy()
                self._values = np.concatenate([self._values, added])
        return self._values[samples]
