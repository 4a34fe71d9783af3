"""The engines that the settings of token2wav name, in place of its torch modules."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch

from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.compiled.cuda import Cuda
from cosyvoice_runtime.compiled.engine_files import open_engine
from cosyvoice_runtime.compiled.export import encoder, estimator, vocoder
from cosyvoice_runtime.compiled.export.graph_files import NETWORKS, graph_of, wanted_graph
from cosyvoice_runtime.compiled.flow_parts import EngineEncoder, EngineEstimator
from cosyvoice_runtime.compiled.manifest import require_current
from cosyvoice_runtime.compiled.onnx_network import OnnxNetwork
from cosyvoice_runtime.compiled.ports import FittedNetwork, Ports
from cosyvoice_runtime.compiled.shapes import FlowShape, Shapes, Sizes, VocoderShape
from cosyvoice_runtime.compiled.tensorrt_network import TensorRTNetwork
from cosyvoice_runtime.compiled.vocoder_part import EngineDecoder
from cosyvoice_runtime.flow.flow import Flow
from cosyvoice_runtime.settings import Token2WavSettings
from cosyvoice_runtime.vocoder.hift import HiFT

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Engines:
    """The three networks, and to which shapes their calls are padded."""

    encoder: FittedNetwork
    estimator: FittedNetwork
    decoder: FittedNetwork
    shapes: Shapes
    fit_flow: Callable[[FlowShape], FlowShape]
    fit_vocoder: Callable[[VocoderShape], VocoderShape]

    def install(self, flow: Flow, hift: HiFT) -> None:
        """Replace the torch modules; F0, the source, the solver and the pages stay as they are."""
        network = flow.network
        part = EngineEstimator(self.estimator, network.estimator, self.shapes, self.fit_flow)
        flow.solver.estimator = part
        network.register_module(
            "encoder", EngineEncoder(self.encoder, network.encoder, self.shapes, self.fit_flow)
        )
        network.register_module("estimator", part)
        hift.register_module("decoder", EngineDecoder(self.decoder, self.shapes, self.fit_vocoder))
        flow.max_frames = min(flow.max_frames, self.shapes.max_tokens * flow.config.frames_per_token)


def shapes_of(settings: Token2WavSettings, config: ModelConfig) -> Shapes:
    """What the engines of these settings are built for."""
    return Shapes(config, settings.max_batch, settings.backend_max_seconds * config.flow.token_rate)


def open_engines(settings: Token2WavSettings, config: ModelConfig) -> Engines:
    """The engines that ``settings.backend`` names: ``onnx`` or ``tensorrt``.

    Raises:
        EngineFileError: engines or the graphs they are built from are missing, or are of something else than
            this checkpoint, these settings, this GPU, this version of TensorRT.
    """
    for name in NETWORKS:
        wanted = wanted_graph(settings.checkpoint_dir, name, settings.dtype)
        require_current(graph_of(settings.backend_dir, name).parent, wanted)
    opened = _OPENERS[settings.backend](settings, shapes_of(settings, config))
    logger.info("backend %s: flow encoder, flow estimator and vocoder decoder", settings.backend)
    return opened


def _open_onnx(settings: Token2WavSettings, shapes: Shapes) -> Engines:
    def network(name: str) -> FittedNetwork:
        path = graph_of(settings.backend_dir, name)
        return FittedNetwork(OnnxNetwork(path, settings.threads), Ports.read(path))

    return Engines(
        encoder=network(encoder.NAME),
        estimator=network(estimator.NAME),
        decoder=network(vocoder.NAME),
        shapes=shapes,
        fit_flow=lambda shape: shape,
        fit_vocoder=lambda shape: shape,
    )


def _open_tensorrt(settings: Token2WavSettings, shapes: Shapes) -> Engines:
    cuda = Cuda(torch.device(settings.device))

    def network(name: str, captured: list[Sizes]) -> FittedNetwork:
        engine = open_engine(settings.backend_dir, name, shapes.profiles()[name], cuda)
        ports = Ports.read(graph_of(settings.backend_dir, name))
        compiled = TensorRTNetwork(engine, [ports.input_shapes(sizes) for sizes in captured])
        return FittedNetwork(compiled, ports)

    return Engines(
        encoder=network(encoder.NAME, [shapes.encoder(shape) for shape in shapes.flow_graphs]),
        estimator=network(estimator.NAME, [shapes.estimator(shape) for shape in shapes.flow_graphs]),
        decoder=network(vocoder.NAME, [shapes.decoder(shape) for shape in shapes.vocoder_graphs]),
        shapes=shapes,
        fit_flow=shapes.fit_flow,
        fit_vocoder=shapes.fit_vocoder,
    )


_OPENERS = {"onnx": _open_onnx, "tensorrt": _open_tensorrt}
