"""Made weights whose numbers reach as far as those of published ones, which random weights never do."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor

TURNS = 2 * math.pi * 256
"""Whole turns, in radians: near them float16 has one number a radian, bfloat16 one in eight."""


def turned_vocoder(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A vocoder whose phases are so many turns further, which no sine hears."""
    bias = tensors["conv_post.bias"].clone()
    bias[len(bias) // 2 :] += TURNS
    return {**tensors, "conv_post.bias": bias}


def error(found: Tensor, expected: Tensor) -> float:
    """The root of the mean square of the difference, over that of what is expected."""
    wanted = expected.double()
    return float((found.double() - wanted).norm() / wanted.norm())
