"""The networks of flows that are computed in blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cosyvoice_runtime.arrays import Array, as_arrays
from cosyvoice_runtime.checkpoint.config_flow import FlowConfig
from cosyvoice_runtime.errors import CheckpointError
from cosyvoice_runtime.families import flow_parts, load
from cosyvoice_runtime.flow import weights as flow_weights
from cosyvoice_runtime.flow import weights_dit
from cosyvoice_runtime.flow.torch.dit import DiT
from cosyvoice_runtime.flow.torch.encoder import FlowEncoder
from cosyvoice_runtime.flow.torch.estimator import Estimator
from cosyvoice_runtime.flow.torch.lookahead_encoder import LookAheadEncoder


@dataclass(frozen=True)
class FlowNetworks:
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


def parts_of(config: FlowConfig) -> FlowNetworks:
    """Networks for a configuration, picked by the class of its estimator.

    Raises:
        CheckpointError: the flow is not computed in blocks.
    """
    networks = flow_parts(config.estimator).networks
    if networks is None:
        raise CheckpointError(f"{type(config.estimator).__name__} has no blocks")
    parts: FlowNetworks = load(networks)
    return parts


def state_dict(config: FlowConfig, tensors: Mapping[str, Any]) -> dict[str, Tensor]:
    """State of the whole network out of published tensors, numpy's or torch's."""
    weights = parts_of(config).from_published(as_arrays(tensors))
    return {name: torch.tensor(array) for name, array in weights.items()}


def _linear_projection(config: FlowConfig) -> nn.Module:
    return nn.Linear(config.conformer.width, config.mel_bins)


def _no_projection(config: FlowConfig) -> nn.Module:  # noqa: ARG001
    return nn.Identity()


UNET = FlowNetworks(FlowEncoder, _linear_projection, Estimator, flow_weights.from_published)
DIFFUSION_TRANSFORMER = FlowNetworks(LookAheadEncoder, _no_projection, DiT, weights_dit.from_published)
