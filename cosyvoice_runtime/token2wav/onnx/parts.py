"""The graphs of each family's networks for ONNX Runtime, picked by the class of their configuration."""

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
    place = families.flow_parts(config.estimator).onnx_graphs
    if place is None:
        raise CheckpointError(f"{type(config.estimator).__name__} has no graph for ONNX Runtime")
    graphs: CpuFlowGraphs = load(place)
    return graphs


def decoder_graph(weights: Weights, config: VocoderConfig) -> onnx.ModelProto:
    """See :class:`StreamedDecoder`."""
    place = families.vocoder_parts(config).onnx_decoder
    if place is None:
        raise CheckpointError(f"{type(config).__name__} has no graph for ONNX Runtime")
    graph: onnx.ModelProto = load(place)(weights, config).build()
    return graph


UNET = CpuFlowGraphs(
    flow_weights.from_published,
    flow_encoder_graph.encoder_graph,
    flow_estimator_graph.estimator_graph,
    flow_times_graph.times_graph,
)
DIFFUSION_TRANSFORMER = CpuFlowGraphs(
    weights_dit.from_published,
    flow_encoder_graph.lookahead_graph,
    flow_transformer_graph.transformer_graph,
    flow_transformer_graph.times_graph,
)
