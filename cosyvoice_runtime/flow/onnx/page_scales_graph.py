"""Weights of an estimator whose keys and values are small enough for pages in 8 bits."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.flow.onnx.page_codes import LARGEST

ATTENTION = re.compile(r"(.*)\.norm_attention\.weight")
IN_WHOLE_NUMBERS = 1.15
"""Products in 8 bits give more than the weights say: each operand is off by half a step, a 254th of its row's
largest, which of 256 channels is at most 16 / 254 of a product, twice."""


class PageScales(NamedTuple):
    """
    Attributes:
        weights: of the estimator, with keys and values of at most ``LARGEST``.
        keys: what attention's scores are to be multiplied with for it, by the layer.
    """

    weights: Mapping[str, Array]
    keys: Mapping[str, float]

    @classmethod
    def of(cls, weights: Mapping[str, Array]) -> PageScales:
        """Keys and values of each layer divided by powers of two, so that nothing else is rounded otherwise;
        the layer after attention multiplies the values again.

        Args:
            weights: of the estimator, by their names in it; those of attention read a layer norm.
        """
        scaled, scales = dict(weights), dict[str, float]()
        for name in (match[1] for match in map(ATTENTION.fullmatch, weights) if match):
            norm = [np.asarray(weights[f"{name}.norm_attention.{part}"]) for part in ("weight", "bias")]
            queries, keys, values = np.split(np.asarray(weights[f"{name}.qkv.weight"], np.float32), 3)
            of_keys, of_values = (scale(largest(part, *norm)) for part in (keys, values))
            scaled[f"{name}.qkv.weight"] = np.concatenate([queries, keys / of_keys, values / of_values])
            scaled[f"{name}.out.weight"] = np.asarray(weights[f"{name}.out.weight"]) * of_values
            scales[name] = float(of_keys)
        return cls(scaled, scales)


def scale(most: float) -> np.float32:
    """Power of two to divide numbers by that are no larger than ``most``."""
    return (
        np.float32(2.0 ** math.ceil(math.log2(IN_WHOLE_NUMBERS * most / LARGEST))) if most else np.float32(1)
    )


def largest(matrix: Array, weight: Array, bias: Array) -> float:
    """The largest magnitude that a product with what a layer norm gives can have.

    Before its own weights, a layer norm of C channels gives a vector of mean 0 and no longer than sqrt(C).

    Args:
        matrix: ``[out, C]``.
        weight, bias: of the norm, ``[C]``.
    """
    varied = np.asarray(matrix, np.float64) * weight
    varied -= varied.mean(axis=1, keepdims=True)
    lengths = np.linalg.norm(varied, axis=1) * math.sqrt(len(weight))
    return float((lengths + np.abs(np.asarray(matrix, np.float64) @ bias)).max())
