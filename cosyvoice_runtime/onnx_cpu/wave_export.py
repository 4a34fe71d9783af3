"""From a checkpoint to token2wav's graphs for ONNX Runtime on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx

from cosyvoice_runtime.checkpoint.checksums import write_checksums
from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.checkpoint.fresh_directory import renew_directory
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.checkpoint.sections import load_config
from cosyvoice_runtime.checkpoint.tensors import load_tensors
from cosyvoice_runtime.onnx_cpu import (
    flow_encoder_graph,
    flow_estimator_graph,
    flow_times_graph,
    hift_decoder_graph,
    hift_f0_graph,
)
from cosyvoice_runtime.onnx_cpu.flow_estimator_graph import EstimatorFormats
from cosyvoice_runtime.onnx_cpu.wave_files import graph_path, wanted_manifest, wave_directory, why_not_usable
from cosyvoice_runtime.wave import flow_weights
from cosyvoice_runtime.wave.stored_arrays import as_arrays, within
from cosyvoice_runtime.wave.vocoder_weights import plain_weights


def export_wave(checkpoint_dir: Path, backend_dir: Path, formats: EstimatorFormats) -> list[str]:
    """Write the graphs unless they are there already, undamaged; says why they were written.

    Args:
        formats: of the flow's estimator.

    Raises:
        CheckpointError: the checkpoint is incomplete, damaged, or of a family whose networks have no graphs.
    """
    wanted, directory = wanted_manifest(checkpoint_dir, formats), wave_directory(backend_dir)

    def write(building: Path) -> None:
        for graph in _graphs(Layout(checkpoint_dir), load_config(checkpoint_dir), formats):
            onnx.save(graph, graph_path(building, graph.graph.name))
        write_checksums(building, [path.name for path in building.iterdir()])
        wanted.write(building)

    return renew_directory(directory, lambda: why_not_usable(directory, wanted), write)


def _graphs(layout: Layout, config: ModelConfig, formats: EstimatorFormats) -> Iterator[onnx.ModelProto]:
    flow, unet = config.flow, config.flow.unet  # refuses another family
    weights = flow_weights.from_published(as_arrays(load_tensors(layout, "flow", config)))
    yield flow_encoder_graph.encoder_graph(weights, flow)
    estimator = within(weights, "estimator.")
    yield flow_estimator_graph.estimator_graph(estimator, unet, flow.mel_bins, formats)
    yield flow_times_graph.times_graph(estimator, unet)
    weights = plain_weights(config.vocoder, load_tensors(layout, "hift", config))
    yield hift_f0_graph.f0_graph(weights, config.vocoder)
    yield hift_decoder_graph.decoder_graph(within(weights, "decoder."), config.vocoder)
