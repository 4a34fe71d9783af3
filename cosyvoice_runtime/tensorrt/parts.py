"""The graphs of each family's networks, picked by the class of their configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import onnx

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.checkpoint.config_flow import DiTConfig, EstimatorConfig, FlowConfig
from cosyvoice_runtime.checkpoint.config_vocoder import CausalVocoderConfig, VocoderConfig
from cosyvoice_runtime.errors import CheckpointError
from cosyvoice_runtime.flow import weights as flow_weights
from cosyvoice_runtime.flow import weights_cosyvoice3 as flow_weights_cosyvoice3
from cosyvoice_runtime.flow.export.dit import dit_graph
from cosyvoice_runtime.flow.export.encoder import encoder_graph
from cosyvoice_runtime.flow.export.estimator import estimator_graph
from cosyvoice_runtime.vocoder.export import CausalDecoderGraph, DecoderGraph

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
    kind = type(config.estimator)
    if kind not in _FLOWS:
        raise CheckpointError(f"{kind.__name__} has no graph")
    return _FLOWS[kind]


def decoder_graph(weights: Weights, config: VocoderConfig, dtype: str) -> onnx.ModelProto:
    """See :class:`DecoderGraph`."""
    return _DECODERS[type(config)](weights, config, dtype).build()


_FLOWS: dict[type, FlowGraphs] = {
    EstimatorConfig: FlowGraphs(flow_weights.from_published, encoder_graph, estimator_graph),
    DiTConfig: FlowGraphs(flow_weights_cosyvoice3.from_published, None, dit_graph),
}
_DECODERS = {VocoderConfig: DecoderGraph, CausalVocoderConfig: CausalDecoderGraph}
