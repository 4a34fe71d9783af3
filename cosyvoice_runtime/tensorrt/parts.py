"""The graphs of each family's networks, picked by the class of their configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import onnx

from cosyvoice_runtime import families
from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.checkpoint.config_flow import FlowConfig
from cosyvoice_runtime.checkpoint.config_vocoder import VocoderConfig
from cosyvoice_runtime.errors import CheckpointError
from cosyvoice_runtime.families import load
from cosyvoice_runtime.flow import weights as flow_weights
from cosyvoice_runtime.flow import weights_dit
from cosyvoice_runtime.flow.export.dit import dit_graph
from cosyvoice_runtime.flow.export.encoder import encoder_graph
from cosyvoice_runtime.flow.export.estimator import estimator_graph

Weights = Mapping[str, Array]


@dataclass(frozen=True)
class FlowGraphs:
    """Writers of the graphs of a flow.

    Attributes:
        from_published: weights of the whole network out of published tensors.
        encoder: of its weights, the flow's configuration and a type; None where what comes before the
            estimator is so small that it stays torch's.
        estimator: of its weights, its configuration, the mel's size and a type.
    """

    from_published: Callable[[Weights], dict[str, Array]]
    encoder: Callable[[Weights, FlowConfig, str], onnx.ModelProto] | None
    estimator: Callable[[Weights, Any, int, str], onnx.ModelProto]


def flow_graphs(config: FlowConfig) -> FlowGraphs:
    """
    Raises:
        CheckpointError: networks of this family have no graphs.
    """
    place = families.flow_parts(config.estimator).tensorrt_graphs
    if place is None:
        raise CheckpointError(f"{type(config.estimator).__name__} has no graph")
    graphs: FlowGraphs = load(place)
    return graphs


def decoder_graph(weights: Weights, config: VocoderConfig, dtype: str) -> onnx.ModelProto:
    """See :class:`DecoderGraph`."""
    place = families.vocoder_parts(config).tensorrt_decoder
    if place is None:
        raise CheckpointError(f"{type(config).__name__} has no graph")
    graph: onnx.ModelProto = load(place)(weights, config, dtype).build()
    return graph


UNET = FlowGraphs(flow_weights.from_published, encoder_graph, estimator_graph)
DIFFUSION_TRANSFORMER = FlowGraphs(weights_dit.from_published, None, dit_graph)
