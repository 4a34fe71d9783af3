"""Exponential noise of a seed, in the order and with the values of PyTorch's generator on a CPU.

A seed gives the same speech tokens whether the network runs on PyTorch or on ONNX Runtime, and those that the
reference draws (`torch.multinomial` on a CPU fills as many values as there are candidates).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

WORD = 0xFFFFFFFF
MANTISSA = (1 << 53) - 1


class ExponentialNoise:
    """Values of ``torch.empty(size).exponential_(generator=torch.Generator().manual_seed(seed))``.

    The generator is the Mersenne Twister MT19937, seeded with the lower 32 bits. Two of its words are one
    value: 53 bits of uniform distribution in double precision, of which the logarithm is rounded to float32.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed & WORD

    @cached_property
    def _twister(self) -> np.random.RandomState:
        """Seeded when it is first asked, which takes 0.1 ms: nobody asks where a device draws.

        The legacy class: its seeding is the one of 2002, and numpy has promised to keep its numbers.
        """
        return np.random.RandomState(self._seed)

    def __call__(self, size: int) -> npt.NDArray[np.float32]:
        """The next ``size`` values, float32 [size]."""
        words = self._twister.randint(0, WORD + 1, (size, 2), dtype=np.uint32)
        bits = (words[:, 0].astype(np.uint64) << np.uint64(32)) | words[:, 1]
        uniform = (bits & np.uint64(MANTISSA)) * 2.0**-53
        return (-np.log1p(-uniform)).astype(np.float32)
