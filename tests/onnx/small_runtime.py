"""Small random networks on ONNX Runtime, and the same on torch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import torch

from cosyvoice_runtime.arrays import within
from cosyvoice_runtime.checkpoint.config import VocoderConfig
from cosyvoice_runtime.flow.onnx.flow import OnnxFlow
from cosyvoice_runtime.flow.solvers import EULER
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.onnx.session import EstimatorFormats, graph_path
from cosyvoice_runtime.token2wav.onnx_export import DIFFUSION_TRANSFORMER, UNET, decoder_graph
from cosyvoice_runtime.vocoder.onnx import decoder_graph as hift_f0_graph
from cosyvoice_runtime.vocoder.onnx.vocoder import OnnxVocoder
from cosyvoice_runtime.vocoder.torch import HiFT
from module_weights import weights_of
from small_flow import CONFIG, COSYVOICE3, random_network
from small_hift import small_hift

FLOAT32 = EstimatorFormats()
FLOWS = {"cosyvoice2": (CONFIG, UNET), "cosyvoice3": (COSYVOICE3, DIFFUSION_TRANSFORMER)}


def flows(
    directory: Path,
    family: str = "cosyvoice2",
    num_steps: int | None = 4,
    formats: EstimatorFormats = FLOAT32,
    solver: str = EULER,
    **changed: Any,
) -> tuple[Flow, OnnxFlow]:
    """The same weights on torch and on ONNX Runtime.

    Args:
        num_steps: None for those of the configuration.
        changed: fields of the configuration that differ.
    """
    config, writers = FLOWS[family]
    config = replace(config, **changed) if changed else config
    network = random_network(config=config)
    weights = weights_of(network)  # before the flow drops some
    flow = Flow(config, network, num_steps, solver=solver)
    estimator = within(weights, "estimator.")
    write(directory, writers.encoder(weights, config))
    write(directory, writers.estimator(estimator, config, formats))
    write(directory, writers.times(estimator, config.estimator))
    return flow, OnnxFlow(config, directory, num_steps, 1, solver)


def vocoders(directory: Path, config: VocoderConfig) -> tuple[HiFT, OnnxVocoder]:
    """The same weights on torch and on ONNX Runtime."""
    hift = small_hift(config, torch.float32)
    weights = weights_of(hift)
    write(directory, hift_f0_graph.f0_graph(weights, config))
    write(directory, decoder_graph(within(weights, "decoder."), config))
    return hift, OnnxVocoder(config, directory, threads=1)


def write(directory: Path, graph: onnx.ModelProto) -> None:
    onnx.save(graph, graph_path(directory, graph.graph.name))
