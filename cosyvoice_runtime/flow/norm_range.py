"""Norms of CosyVoice3's estimator brought into the range of float16, without a change of what follows.

The time scales and shifts what a norm gives. A channel that may leave float16's range there is divided by a
power of two, and the layers that read it multiply it again: what follows is the same to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from cosyvoice_runtime.arrays import Array, Floats
from cosyvoice_runtime.checkpoint.schema_flow import TIME_SINUSOID

LARGEST = 2.0**15
"""Half of float16's range, since times between those that are looked at may give more."""
TIMES = np.linspace(0, 1, 11)
TIME_SCALE = 1000.0


class ModulatedNorm(NamedTuple):
    """A norm that the time changes.

    Attributes:
        time: the linear layer that gives its vectors.
        shift, scale: which of them shifts, and which, and one more, scales.
        readers: the linear layers that read the norm.
    """

    time: str
    shift: int
    scale: int
    readers: Sequence[str]


def norms_in_range(weights: Mapping[str, Array]) -> dict[str, Array]:
    """Weights of the flow by the names of the network, with all norms of the estimator in float16's range."""
    changed = dict(weights)
    active = _active_times(weights)
    for norm in _norms(weights):
        factors = _factors(weights, norm, active)
        if factors.max() > 1:
            _divide(changed, norm, factors)
    return changed


def _norms(weights: Mapping[str, Array]) -> Iterator[ModulatedNorm]:
    depth = sum(name.endswith(".qkv.weight") for name in weights)
    for block in range(depth):
        time, layers = f"estimator.time.blocks.{block}", f"estimator.blocks.{block}"
        yield ModulatedNorm(time, 0, 1, [f"{layers}.qkv"])
        yield ModulatedNorm(time, 3, 4, [f"{layers}.widen"])
    yield ModulatedNorm("estimator.time.final", 1, 0, ["estimator.projection"])


def _active_times(weights: Mapping[str, Array]) -> Floats:
    """The embedding of :data:`TIMES` that all layers of the time read: ``[times, C]``."""
    half = TIME_SINUSOID // 2
    frequencies = np.exp(np.arange(half) * (-math.log(10000.0) / (half - 1)))
    angles = TIME_SCALE * TIMES[:, None] * frequencies
    hidden: Floats = np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)
    for layer in ("first", "second"):
        name = f"estimator.time.{layer}"
        hidden = hidden @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]
        hidden = hidden / (1 + np.exp(-hidden))
    return hidden


def _vectors(weights: Mapping[str, Array], norm: ModulatedNorm, which: int, active: Floats) -> Floats:
    """One vector of each time: ``[times, C]``."""
    rows = _rows(active.shape[1], which)
    given: Floats = active @ weights[f"{norm.time}.weight"][rows].T + weights[f"{norm.time}.bias"][rows]
    return given


def _rows(width: int, which: int) -> slice:
    return slice(which * width, (which + 1) * width)


def _factors(weights: Mapping[str, Array], norm: ModulatedNorm, active: Floats) -> Floats:
    """The power of two that divides each channel, 1 where it is in range: ``[C]``."""
    gain, shift = (
        1 + _vectors(weights, norm, norm.scale, active),
        _vectors(weights, norm, norm.shift, active),
    )
    largest_normed = math.sqrt(active.shape[1])  # no value of a norm is larger
    bound = (np.abs(gain) * largest_normed + np.abs(shift)).max(axis=0)
    return np.exp2(np.ceil(np.log2(np.maximum(bound / LARGEST, 1)))).astype(np.float32)


def _divide(weights: dict[str, Array], norm: ModulatedNorm, factors: Floats) -> None:
    weight, bias = (weights[f"{norm.time}.{part}"].copy() for part in ("weight", "bias"))
    scale, shift = (_rows(len(factors), which) for which in (norm.scale, norm.shift))
    for rows in (scale, shift):
        weight[rows] /= factors[:, None]
        bias[rows] /= factors
    bias[scale] += 1 / factors - 1  # the network adds 1 to what the time gives
    weights |= {f"{norm.time}.weight": weight, f"{norm.time}.bias": bias}
    for reader in norm.readers:
        weights[f"{reader}.weight"] = weights[f"{reader}.weight"] * factors
