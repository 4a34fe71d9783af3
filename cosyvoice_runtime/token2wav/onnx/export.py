"""From a checkpoint to token2wav's graphs for ONNX Runtime on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx

from cosyvoice_runtime.arrays import as_arrays, within
from cosyvoice_runtime.checkpoint.checksums import write_checksums
from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.checkpoint.fresh_directory import renew_directory
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.checkpoint.sections import load_config
from cosyvoice_runtime.checkpoint.tensors import load_tensors
from cosyvoice_runtime.onnx.wave_graphs import EstimatorFormats, graph_path
from cosyvoice_runtime.token2wav.onnx.files import wanted_manifest, wave_directory, why_not_usable
from cosyvoice_runtime.token2wav.onnx.parts import decoder_graph, flow_parts
from cosyvoice_runtime.vocoder.onnx import f0_graph as hift_f0_graph
from cosyvoice_runtime.vocoder.weights import plain_weights


def export_wave(checkpoint_dir: Path, backend_dir: Path, formats: EstimatorFormats) -> list[str]:
    """Write the graphs unless they are there already, undamaged; says why they were written.

    Args:
        formats: of the flow's estimator.

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
    flow, parts = config.flow, flow_parts(config.flow)
    weights = parts.from_published(as_arrays(load_tensors(layout, "flow", config)))
    yield parts.encoder(weights, flow)
    estimator = within(weights, "estimator.")
    yield parts.estimator(estimator, flow.estimator, flow.mel_bins, formats)
    yield parts.times(estimator, flow.estimator)
    weights = plain_weights(config.vocoder, load_tensors(layout, "hift", config))
    yield hift_f0_graph.f0_graph(weights, config.vocoder)
    yield decoder_graph(within(weights, "decoder."), config.vocoder)
