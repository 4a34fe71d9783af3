"""The graphs of each family's networks for ONNX Runtime, picked by the class of their configuration."""

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
from cosyvoice_runtime.flow.onnx import (
    encoder_graph as flow_encoder_graph,
)
from cosyvoice_runtime.flow.onnx import (
    estimator_graph as flow_estimator_graph,
)
from cosyvoice_runtime.flow.onnx import (
    times_graph as flow_times_graph,
)
from cosyvoice_runtime.flow.onnx import (
    transformer_graph as flow_transformer_graph,
)
from cosyvoice_runtime.onnx.wave_graphs import EstimatorFormats
from cosyvoice_runtime.vocoder.onnx.decoder_graph import CausalStreamedDecoder, StreamedDecoder

Weights = Mapping[str, Array]


@dataclass(frozen=True)
class CpuFlowGraphs:
    """Writers of the graphs of a flow.

    Attributes:
        from_published: weights of the whole network out of published tensors.
        encoder: of these weights and the flow's configuration.
        estimator: of the estimator's weights, its configuration, the mel's size and formats.
        times: of the estimator's weights and its configuration.
    """

    from_published: Callable[[Weights], dict[str, Array]]
    encoder: Callable[[Weights, FlowConfig], onnx.ModelProto]
    estimator: Callable[[Weights, Any, int, EstimatorFormats], onnx.ModelProto]
    times: Callable[[Weights, Any], onnx.ModelProto]


def flow_parts(config: FlowConfig) -> CpuFlowGraphs:
    """
    Raises:
        CheckpointError: networks of this family have no graphs.
    """
    kind = type(config.estimator)
    if kind not in _FLOWS:
        raise CheckpointError(f"{kind.__name__} has no graph for ONNX Runtime")
    return _FLOWS[kind]


def decoder_graph(weights: Weights, config: VocoderConfig) -> onnx.ModelProto:
    """See :class:`StreamedDecoder`."""
    return _DECODERS[type(config)](weights, config).build()


_DECODERS = {VocoderConfig: StreamedDecoder, CausalVocoderConfig: CausalStreamedDecoder}
_FLOWS: dict[type, CpuFlowGraphs] = {
    EstimatorConfig: CpuFlowGraphs(
        flow_weights.from_published,
        flow_encoder_graph.encoder_graph,
        flow_estimator_graph.estimator_graph,
        flow_times_graph.times_graph,
    ),
    DiTConfig: CpuFlowGraphs(
        flow_weights_cosyvoice3.from_published,
        flow_encoder_graph.lookahead_graph,
        flow_transformer_graph.transformer_graph,
        flow_transformer_graph.times_graph,
    ),
}
