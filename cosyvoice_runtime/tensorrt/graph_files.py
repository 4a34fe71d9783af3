"""Graphs in a directory, each with a manifest of what it was written from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from cosyvoice_runtime import families
from cosyvoice_runtime.arrays import Array, as_arrays, within
from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.checkpoint.checksums import sha256_of
from cosyvoice_runtime.checkpoint.config import ModelConfig, VocoderConfig
from cosyvoice_runtime.checkpoint.config_flow import FlowConfig
from cosyvoice_runtime.checkpoint.fresh_directory import renew_directory
from cosyvoice_runtime.checkpoint.layout import Layout, Part
from cosyvoice_runtime.checkpoint.sections import load_config
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.flow import weights as flow_weights
from cosyvoice_runtime.flow.export import encoder, estimator
from cosyvoice_runtime.flow.export.encoder import encoder_graph
from cosyvoice_runtime.flow.export.estimator import dit_graph, estimator_graph
from cosyvoice_runtime.manifest import Manifest, own_code, stale_reasons
from cosyvoice_runtime.onnx.graph import ONNX_TYPES, OPSET
from cosyvoice_runtime.tensorrt import extractor_graphs as extractors
from cosyvoice_runtime.vocoder import export as vocoder
from cosyvoice_runtime.vocoder.weights import plain_weights

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
    """Writers for a flow's configuration; a CheckpointError for a family without graphs."""
    place = families.flow_parts(config.estimator).tensorrt_graphs
    graphs: FlowGraphs = families.load_for(place, config.estimator, "graph for TensorRT")
    return graphs


def decoder_graph(weights: Weights, config: VocoderConfig, dtype: str) -> onnx.ModelProto:
    """The graph of the vocoder's decoder."""
    decoder = families.load_for(families.vocoder_parts(config).tensorrt_decoder, config, "graph for TensorRT")
    graph: onnx.ModelProto = decoder(weights, config, dtype).build()
    return graph


UNET = FlowGraphs(flow_weights.unet_weights, encoder_graph, estimator_graph)
DIFFUSION_TRANSFORMER = FlowGraphs(flow_weights.dit_weights, None, dit_graph)


WRITERS = (
    "flow/export/*.py",
    "flow/norm_range.py",
    "flow/weights.py",
    "onnx/graph.py",
    "onnx/layers.py",
    "tensorrt/extractor_graphs.py",
    "tensorrt/graph_files.py",
    "vocoder/export.py",
    "vocoder/weights.py",
)
"""Modules that say what the graphs hold."""
NETWORKS: dict[str, Part] = {encoder.NAME: "flow", estimator.NAME: "flow", vocoder.NAME: "hift"}
"""Graphs written here, and the weights that they are written from."""


def networks_of(config: ModelConfig) -> list[str]:
    """The :data:`NETWORKS` that a checkpoint has; a CheckpointError for a flow without graphs."""
    without = () if flow_graphs(config.flow).encoder else (encoder.NAME,)
    return [name for name in NETWORKS if name not in without]


def graph_of(directory: Path, name: str) -> Path:
    """File of a graph, with its manifest in the same folder."""
    return directory / "onnx" / name / "model.onnx"


def wanted_graph(checkpoint_dir: Path, name: str, dtype: str) -> Manifest:
    """Sources that a graph of this checkpoint is written from.

    Args:
        dtype: of the networks; the extractors have the published one.

    Raises:
        CheckpointError: a file of the checkpoint is missing.
        InvalidInput: a graph can't have this type.
    """
    if dtype not in ONNX_TYPES:
        raise InvalidInput("dtype", dtype, f"graphs are {' or '.join(ONNX_TYPES)}")
    own = {"dtype": dtype, "opset": OPSET} if name in NETWORKS else {}
    return Manifest(
        sources={path.name: sha256_of(path) for path in _sources(Layout(checkpoint_dir), name)},
        tools=own_code(WRITERS),
        options=own,
    )


def export_graph(checkpoint_dir: Path, directory: Path, name: str, dtype: str) -> list[str]:
    """Write a graph unless it is there already; says why it was written.

    Raises:
        CheckpointError: the checkpoint is incomplete or damaged.
        InvalidInput: a graph can't have this type.
    """
    wanted, target = wanted_graph(checkpoint_dir, name, dtype), graph_of(directory, name)

    def write(building: Path) -> None:
        _write(checkpoint_dir, name, dtype, building / target.name)
        wanted.write(building)

    return renew_directory(target.parent, lambda: stale_reasons(target.parent, wanted), write)


def _sources(layout: Layout, name: str) -> list[Path]:
    if name in NETWORKS:
        return [layout.config, layout.weights(NETWORKS[name])]
    return [layout.speech_tokenizer if name == extractors.TOKENIZER_NAME else layout.speaker_encoder]


def _write(checkpoint_dir: Path, name: str, dtype: str, target: Path) -> None:
    layout = Layout(checkpoint_dir)
    if name in NETWORKS:
        onnx.save(_network(layout, name, dtype), target)
    else:
        extractors.prepare(name, _sources(layout, name)[0], target)


def _network(layout: Layout, name: str, dtype: str) -> onnx.ModelProto:
    config = load_config(layout.directory)
    graphs = flow_graphs(config.flow)
    tensors = load_tensors(layout, NETWORKS[name], config)
    if name == vocoder.NAME:
        weights = plain_weights(config.vocoder, tensors)
        return decoder_graph(within(weights, "decoder."), config.vocoder, dtype)
    weights = graphs.from_published(as_arrays(tensors))
    if name == estimator.NAME:
        flow = config.flow
        return graphs.estimator(within(weights, "estimator."), flow.estimator, flow.mel_bins, dtype)
    assert graphs.encoder is not None, "networks_of does not name it"
    return graphs.encoder(within(weights, "encoder."), config.flow, dtype)
