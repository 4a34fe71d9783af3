"""Token2wav's graphs for ONNX Runtime on a CPU, written from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from cosyvoice_runtime import families
from cosyvoice_runtime.arrays import Array, as_arrays, within
from cosyvoice_runtime.checkpoint.checksums import write_checksums
from cosyvoice_runtime.checkpoint.config import ModelConfig, VocoderConfig
from cosyvoice_runtime.checkpoint.config_flow import FlowConfig
from cosyvoice_runtime.checkpoint.fresh_directory import renew_directory
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.checkpoint.sections import load_config
from cosyvoice_runtime.checkpoint.tensors import load_tensors
from cosyvoice_runtime.flow import weights as flow_weights
from cosyvoice_runtime.flow.onnx.encoder_graph import encoder_graph, lookahead_graph, times_graph
from cosyvoice_runtime.flow.onnx.estimator_graph import (
    estimator_graph,
    transformer_graph,
    transformer_times_graph,
)
from cosyvoice_runtime.onnx.session import EstimatorFormats, graph_path
from cosyvoice_runtime.token2wav.onnx_files import wanted_manifest, wave_directory, why_not_usable
from cosyvoice_runtime.vocoder.onnx.decoder_graph import f0_graph
from cosyvoice_runtime.vocoder.weights import plain_weights

Weights = Mapping[str, Array]


@dataclass(frozen=True)
class CpuFlowGraphs:
    """Writers of the graphs of a family's flow.

    Attributes:
        from_published: gives weights of the whole network for published tensors.
        encoder: takes these weights and the flow's configuration.
        estimator: takes the estimator's weights, the flow's configuration and formats.
        times: takes the estimator's weights and its configuration.
    """

    from_published: Callable[[Weights], dict[str, Array]]
    encoder: Callable[[Weights, FlowConfig], onnx.ModelProto]
    estimator: Callable[[Weights, FlowConfig, EstimatorFormats], onnx.ModelProto]
    times: Callable[[Weights, Any], onnx.ModelProto]


UNET = CpuFlowGraphs(flow_weights.unet_weights, encoder_graph, estimator_graph, times_graph)
DIFFUSION_TRANSFORMER = CpuFlowGraphs(
    flow_weights.dit_weights, lookahead_graph, transformer_graph, transformer_times_graph
)


def export_wave(checkpoint_dir: Path, backend_dir: Path, formats: EstimatorFormats) -> list[str]:
    """Write the graphs unless they are there already, undamaged; says why they were written.

    Args:
        formats: the number formats of the flow's estimator.

    Raises:
        CheckpointError: the checkpoint is incomplete, damaged, or of a family whose networks have no graphs.
        InvalidInput: the family's estimator has no such formats.
    """
    wanted, directory = wanted_manifest(checkpoint_dir, formats), wave_directory(backend_dir)

    def write(building: Path) -> None:
        for graph in _graphs(Layout(checkpoint_dir), load_config(checkpoint_dir), formats):
            onnx.save(graph, graph_path(building, graph.graph.name))
        write_checksums(building, [path.name for path in building.iterdir()])
        wanted.write(building)

    return renew_directory(directory, lambda: why_not_usable(directory, wanted), write)


def _graphs(layout: Layout, config: ModelConfig, formats: EstimatorFormats) -> Iterator[onnx.ModelProto]:
    flow = config.flow
    place = families.flow_parts(flow.estimator).onnx_graphs
    writers: CpuFlowGraphs = families.load_for(place, flow.estimator, "graph for ONNX Runtime")
    weights = writers.from_published(as_arrays(load_tensors(layout, "flow", config)))
    yield writers.encoder(weights, flow)
    estimator = within(weights, "estimator.")
    yield writers.estimator(estimator, flow, formats)
    yield writers.times(estimator, flow.estimator)
    weights = plain_weights(config.vocoder, load_tensors(layout, "hift", config))
    yield f0_graph(weights, config.vocoder)
    yield decoder_graph(within(weights, "decoder."), config.vocoder)


def decoder_graph(weights: Weights, config: VocoderConfig) -> onnx.ModelProto:
    """The graph of the vocoder's decoder; a CheckpointError for a family without one."""
    place = families.vocoder_parts(config).onnx_decoder
    make = families.load_for(place, config, "graph for ONNX Runtime")
    graph: onnx.ModelProto = make(weights, config).build()
    return graph
