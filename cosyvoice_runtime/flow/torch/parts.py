"""The networks of each family's flow, picked by the class of its configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.checkpoint.config_flow import DiTConfig, EstimatorConfig, FlowConfig
from cosyvoice_runtime.checkpoint.stored_arrays import as_arrays
from cosyvoice_runtime.flow import weights as flow_weights
from cosyvoice_runtime.flow import weights_cosyvoice3 as flow_weights_cosyvoice3
from cosyvoice_runtime.flow.torch.dit import DiT
from cosyvoice_runtime.flow.torch.encoder import FlowEncoder
from cosyvoice_runtime.flow.torch.estimator import Estimator
from cosyvoice_runtime.flow.torch.lookahead_encoder import LookAheadEncoder


@dataclass(frozen=True)
class FlowParts:
    """Makers of the parts of a flow.

    Attributes:
        encoder: of a configuration, ``token_width``, ``lookahead_tokens`` and ``frames_per_token``.
        projection: of what the encoder gives to the mel's size.
        estimator: of a configuration and the mel's size.
        from_published: state of the whole network out of published tensors.
    """

    encoder: Callable[[Any, int, int, int], FlowEncoder | LookAheadEncoder]
    projection: Callable[[FlowConfig], nn.Module]
    estimator: Callable[[Any, int], Estimator | DiT]
    from_published: Callable[[Mapping[str, Array]], dict[str, Array]]


def parts_of(config: FlowConfig) -> FlowParts:
    """Parts of the configuration's family."""
    return _PARTS[type(config.estimator)]


def state_dict(config: FlowConfig, tensors: Mapping[str, Any]) -> dict[str, Tensor]:
    """State of the whole network out of published tensors, numpy's or torch's."""
    weights = parts_of(config).from_published(as_arrays(tensors))
    return {name: torch.tensor(array) for name, array in weights.items()}


def _linear_projection(config: FlowConfig) -> nn.Module:
    return nn.Linear(config.conformer.width, config.mel_bins)


def _no_projection(config: FlowConfig) -> nn.Module:  # noqa: ARG001
    return nn.Identity()


_PARTS = {
    EstimatorConfig: FlowParts(FlowEncoder, _linear_projection, Estimator, flow_weights.from_published),
    DiTConfig: FlowParts(LookAheadEncoder, _no_projection, DiT, flow_weights_cosyvoice3.from_published),
}
