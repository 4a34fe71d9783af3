"""Published tensors of HiFT as the network's plain weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cosyvoice_runtime.arrays import Array, as_arrays
from cosyvoice_runtime.checkpoint.config import VocoderConfig
from cosyvoice_runtime.checkpoint.schema import vocoder_schema
from cosyvoice_runtime.checkpoint.tensors import schema_problems
from cosyvoice_runtime.errors import CheckpointError

GAIN = ".parametrizations.weight.original0"
DIRECTION = ".parametrizations.weight.original1"


def plain_weights(config: VocoderConfig, tensors: Mapping[str, Any]) -> dict[str, Array]:
    """The vocoder's state, float32, weight norm folded; a CheckpointError tells of a wrong tensor."""
    problems = schema_problems(tensors, vocoder_schema(config))
    if problems:
        raise CheckpointError(f"hift: {problems[0]}")
    folded = _fold(as_arrays(tensors))
    return {_own_name(name): array.astype(np.float32) for name, array in folded.items()}


def _own_name(name: str) -> str:
    return name if name.startswith(("f0_predictor.", "m_source.")) else f"decoder.{name}"


def _fold(tensors: Mapping[str, Array]) -> dict[str, Array]:
    plain = {name: tensor for name, tensor in tensors.items() if not name.endswith((GAIN, DIRECTION))}
    for name, gain in tensors.items():
        layer = name.removesuffix(GAIN)
        if layer != name:
            plain[f"{layer}.weight"] = _scaled(
                gain.astype(np.float64), tensors[layer + DIRECTION].astype(np.float64)
            )
    return plain


def _scaled(gain: Array, direction: Array) -> Array:
    """Weight norm (arXiv 1602.07868): one gain for each slice along axis 0."""
    scaled: Array = gain * direction / np.sqrt(np.square(direction).sum(axis=(1, 2), keepdims=True))
    return scaled
