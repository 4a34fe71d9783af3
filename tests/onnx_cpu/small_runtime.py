"""Small random networks on ONNX Runtime, and the same on torch."""

from __future__ import annotations

from pathlib import Path

import onnx
import torch
from small_flow import CONFIG, random_flow
from small_hift import small_hift

from cosyvoice_runtime.checkpoint.config import VocoderConfig
from cosyvoice_runtime.flow.flow import Flow
from cosyvoice_runtime.onnx_cpu import (
    flow_encoder_graph,
    flow_estimator_graph,
    flow_times_graph,
    hift_decoder_graph,
    hift_f0_graph,
)
from cosyvoice_runtime.onnx_cpu.flow import OnnxFlow
from cosyvoice_runtime.onnx_cpu.flow_estimator_graph import EstimatorFormats
from cosyvoice_runtime.onnx_cpu.vocoder import OnnxVocoder
from cosyvoice_runtime.onnx_cpu.wave_files import graph_path
from cosyvoice_runtime.vocoder import HiFT
from cosyvoice_runtime.wave.solvers import EULER
from cosyvoice_runtime.wave.stored_arrays import within
from module_weights import weights_of

FLOAT32 = EstimatorFormats()


def flows(
    directory: Path, num_steps: int = 4, formats: EstimatorFormats = FLOAT32, solver: str = EULER
) -> tuple[Flow, OnnxFlow]:
    """The same weights on torch and on ONNX Runtime."""
    flow = random_flow(num_steps=num_steps, solver=solver)
    weights = weights_of(flow.network)
    estimator = within(weights, "estimator.")
    write(directory, flow_encoder_graph.encoder_graph(weights, CONFIG))
    write(
        directory,
        flow_estimator_graph.estimator_graph(estimator, CONFIG.unet, CONFIG.mel_bins, formats),
    )
    write(directory, flow_times_graph.times_graph(estimator, CONFIG.unet))
    return flow, OnnxFlow(CONFIG, directory, num_steps, 1, solver)


def vocoders(directory: Path, config: VocoderConfig) -> tuple[HiFT, OnnxVocoder]:
    """The same weights on torch and on ONNX Runtime."""
    hift = small_hift(config, torch.float32)
    weights = weights_of(hift)
    write(directory, hift_f0_graph.f0_graph(weights, config))
    write(directory, hift_decoder_graph.decoder_graph(within(weights, "decoder."), config))
    return hift, OnnxVocoder(config, directory, threads=1)


def write(directory: Path, graph: onnx.ModelProto) -> None:
    onnx.save(graph, graph_path(directory, graph.graph.name))
