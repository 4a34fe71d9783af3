"""Published tensors of HiFT as the network's plain weights."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint.config import VocoderConfig
from cosyvoice_runtime.checkpoint.schema import vocoder_schema
from cosyvoice_runtime.checkpoint.tensors import published_names, schema_problems
from cosyvoice_runtime.errors import CheckpointError

GAIN = ".parametrizations.weight.original0"
DIRECTION = ".parametrizations.weight.original1"


def plain_weights(config: VocoderConfig, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """State dict of :class:`~cosyvoice_runtime.vocoder.hift.HiFT`, float32, weight norm folded.

    Raises:
        CheckpointError: a tensor is missing, unknown, or of another shape or type.
    """
    published = published_names("hift", dict(tensors))
    problems = schema_problems(published, vocoder_schema(config))
    if problems:
        raise CheckpointError(f"hift: {problems[0]}")
    return {_own_name(name): tensor.float() for name, tensor in _fold(published).items()}


def _own_name(name: str) -> str:
    return name if name.startswith(("f0_predictor.", "m_source.")) else f"decoder.{name}"


def _fold(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    plain = {name: tensor for name, tensor in tensors.items() if not name.endswith((GAIN, DIRECTION))}
    for name, gain in tensors.items():
        layer = name.removesuffix(GAIN)
        if layer != name:
            plain[f"{layer}.weight"] = _scaled(gain.double(), tensors[layer + DIRECTION].double())
    return plain


def _scaled(gain: Tensor, direction: Tensor) -> Tensor:
    """Weight norm (arXiv 1602.07868): one gain for each slice along axis 0."""
    return gain * direction / torch.linalg.vector_norm(direction, dim=(1, 2), keepdim=True)
