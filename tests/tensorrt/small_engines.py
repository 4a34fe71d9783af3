"""Graphs of the small random networks, as files, and shapes that fit them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import torch

from cosyvoice_runtime.checkpoint.config import VocoderConfig
from cosyvoice_runtime.checkpoint.config_flow import FlowConfig
from cosyvoice_runtime.flow.export import encoder, estimator
from cosyvoice_runtime.tensorrt.engine_files import GraphPorts
from cosyvoice_runtime.tensorrt.graph_files import decoder_graph, flow_graphs
from cosyvoice_runtime.tensorrt.network import FittedNetwork
from cosyvoice_runtime.tensorrt.shapes import Shapes
from cosyvoice_runtime.tensorrt.token2wav_engines import Token2WavEngines
from cosyvoice_runtime.vocoder import export as vocoder
from making.architecture import TINY
from module_weights import weights_of
from small_flow import CONFIG, COSYVOICE3, random_flow
from small_hift import CAUSAL, PUBLISHED, small_hift

DISTILLED = replace(CONFIG, times=(0.0, 0.1, 0.3, 0.8), cfg_rate=0.0)
FLOWS: dict[str, FlowConfig] = {"cosyvoice2": CONFIG, "cosyvoice3": COSYVOICE3, "distilled": DISTILLED}
VOCODERS: dict[str, VocoderConfig] = {"cosyvoice2": PUBLISHED, "cosyvoice3": CAUSAL, "distilled": PUBLISHED}


@cache
def shapes_of(family: str) -> Shapes:
    model = replace(TINY, flow=FLOWS[family], vocoder=VOCODERS[family])
    return Shapes(model, max_rows=4, max_tokens=250)


SHAPES = shapes_of("cosyvoice2")


@cache
def graphs(dtype: str, family: str, vocoder: VocoderConfig) -> list[onnx.ModelProto]:
    """Encoder, if there is one, estimator and decoder."""
    config, writers = FLOWS[family], flow_graphs(FLOWS[family])
    flow, hift = random_flow(config=config).network, small_hift(vocoder, torch.float32)
    written = [
        writers.estimator(weights_of(flow.estimator), config.estimator, config.mel_bins, dtype),
        decoder_graph(weights_of(hift.decoder), vocoder, dtype),
    ]
    if writers.encoder is not None:
        written.insert(0, writers.encoder(weights_of(flow.encoder), config, dtype))
    return written


def write_graphs(
    directory: Path,
    dtype: str = "float32",
    family: str = "cosyvoice2",
    vocoder: VocoderConfig | None = None,
) -> list[Path]:
    paths = []
    for model in graphs(dtype, family, vocoder or VOCODERS[family]):
        paths.append(directory / f"{model.graph.name}.onnx")
        onnx.save(model, paths[-1])
    return paths


def engines(
    directory: Path, compiled: Callable[[Path], Any], padded: bool, family: str = "cosyvoice2"
) -> Token2WavEngines:
    """The networks; ``padded`` as TensorRT's are, else at the shapes of the call."""
    networks = {
        path.stem: FittedNetwork(compiled(path), GraphPorts.read(path))
        for path in write_graphs(directory, family=family)
    }
    shapes = shapes_of(family)
    return Token2WavEngines(
        encoder=networks.get(encoder.NAME),
        estimator=networks[estimator.NAME],
        decoder=networks[vocoder.NAME],
        shapes=shapes,
        fit_flow=shapes.fit_flow if padded else lambda shape: shape,
        fit_vocoder=shapes.fit_vocoder if padded else lambda shape: shape,
    )
