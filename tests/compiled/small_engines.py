"""Graphs of the small random networks, as files, and shapes that fit them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import onnx
import torch
from small_flow import CONFIG, random_flow
from small_hift import PUBLISHED, small_hift

from cosyvoice_runtime.checkpoint.config import VocoderConfig
from cosyvoice_runtime.checkpoint.making.architecture import TINY
from cosyvoice_runtime.compiled.export.encoder import encoder_graph
from cosyvoice_runtime.compiled.export.estimator import estimator_graph
from cosyvoice_runtime.compiled.export.vocoder import decoder_graph
from cosyvoice_runtime.compiled.network import CompiledNetwork
from cosyvoice_runtime.compiled.ports import FittedNetwork, GraphPorts
from cosyvoice_runtime.compiled.shapes import Shapes
from cosyvoice_runtime.compiled.token2wav_engines import Token2WavEngines
from module_weights import weights_of

MODEL = replace(TINY, flow=CONFIG, vocoder=PUBLISHED)
SHAPES = Shapes(MODEL, max_rows=4, max_tokens=250)


@cache
def graphs(dtype: str = "float32", vocoder: VocoderConfig = PUBLISHED) -> list[onnx.ModelProto]:
    """Encoder, estimator and decoder."""
    flow, hift = random_flow().network, small_hift(vocoder, torch.float32)
    return [
        encoder_graph(weights_of(flow.encoder), CONFIG, dtype),
        estimator_graph(weights_of(flow.estimator), CONFIG.estimator, CONFIG.mel_bins, dtype),
        decoder_graph(weights_of(hift.decoder), vocoder, dtype),
    ]


def write_graphs(directory: Path, dtype: str = "float32", vocoder: VocoderConfig = PUBLISHED) -> list[Path]:
    paths = []
    for model in graphs(dtype, vocoder):
        paths.append(directory / f"{model.graph.name}.onnx")
        onnx.save(model, paths[-1])
    return paths


def engines(directory: Path, compiled: Callable[[Path], CompiledNetwork], padded: bool) -> Token2WavEngines:
    """The three networks; ``padded`` as TensorRT's are, else at the shapes of the call."""
    networks = [FittedNetwork(compiled(path), GraphPorts.read(path)) for path in write_graphs(directory)]
    return Token2WavEngines(
        *networks,
        shapes=SHAPES,
        fit_flow=SHAPES.fit_flow if padded else lambda shape: shape,
        fit_vocoder=SHAPES.fit_vocoder if padded else lambda shape: shape,
    )
