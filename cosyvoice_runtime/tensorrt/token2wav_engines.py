"""The engines that the settings of token2wav name, in place of its torch modules."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch

from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.families import flow_parts, load
from cosyvoice_runtime.flow.export import encoder, estimator
from cosyvoice_runtime.flow.torch.dit import DiT
from cosyvoice_runtime.flow.torch.encoder import FlowEncoder
from cosyvoice_runtime.flow.torch.estimator import Estimator
from cosyvoice_runtime.flow.torch.lookahead_encoder import LookAheadEncoder
from cosyvoice_runtime.gpu.cuda_graphs import EagerCalls
from cosyvoice_runtime.manifest import require_current
from cosyvoice_runtime.settings import Token2WavSettings
from cosyvoice_runtime.tensorrt.cuda import Cuda
from cosyvoice_runtime.tensorrt.engine_files import open_engine
from cosyvoice_runtime.tensorrt.engine_modules import EngineDecoder, EngineEncoder, EngineEstimator
from cosyvoice_runtime.tensorrt.graph_files import graph_of, networks_of, wanted_graph
from cosyvoice_runtime.tensorrt.network import TensorRTNetwork
from cosyvoice_runtime.tensorrt.ports import FittedNetwork, GraphPorts
from cosyvoice_runtime.tensorrt.shapes import FlowShape, Shapes, Sizes, VocoderShape
from cosyvoice_runtime.vocoder import export as vocoder

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Token2WavEngines:
    """The networks, and to which shapes their calls are padded.

    A :class:`~cosyvoice_runtime.flow.torch.flow.CompiledFlow`; F0, source, solver and pages are torch's.

    Attributes:
        encoder: None where what comes before the estimator is torch's.
    """

    encoder: FittedNetwork | None
    estimator: FittedNetwork
    decoder: FittedNetwork
    shapes: Shapes
    fit_flow: Callable[[FlowShape], FlowShape]
    fit_vocoder: Callable[[VocoderShape], VocoderShape]

    @property
    def max_frames(self) -> int:
        """Of one utterance, prompt included."""
        return self.shapes.max_tokens * self.shapes.config.flow.frames_per_token

    def encoding(
        self, encoder: FlowEncoder | LookAheadEncoder
    ) -> EngineEncoder | FlowEncoder | LookAheadEncoder:
        if self.encoder is None:
            return encoder
        return EngineEncoder(self.encoder, encoder, self.shapes, self.fit_flow)

    def velocity(self, estimator: Estimator | DiT) -> EngineEstimator:
        place = flow_parts(self.shapes.config.flow.estimator).tensorrt_estimator
        assert place is not None, "an engine was opened for the estimator"
        velocity: EngineEstimator = load(place)(self.estimator, estimator, self.shapes, self.fit_flow)
        return velocity

    def decoding(self) -> EngineDecoder:
        """In place of the vocoder's decoder."""
        return EngineDecoder(self.decoder, self.shapes, self.fit_vocoder)


def shapes_of(settings: Token2WavSettings, config: ModelConfig) -> Shapes:
    """Sizes that the engines of these settings are built for."""
    return Shapes(config, settings.most_batch, settings.backend_max_seconds * config.flow.token_rate)


def open_engines(settings: Token2WavSettings, config: ModelConfig, eager: EagerCalls) -> Token2WavEngines:
    """The engines of backend tensorrt.

    Args:
        eager: counts TensorRT's calls without a captured graph.

    Raises:
        EngineFileError: engines or the graphs they are built from are missing, or are of something else than
            this checkpoint, these settings, this GPU, this version of TensorRT.
    """
    names = networks_of(config)
    for name in names:
        wanted = wanted_graph(settings.checkpoint_dir, name, settings.dtype)
        require_current(graph_of(settings.backend_dir, name).parent, wanted)
    opened = _open_tensorrt(settings, shapes_of(settings, config), eager)
    logger.info("backend tensorrt: %s", ", ".join(names).replace("_", " "))
    return opened


def _open_tensorrt(settings: Token2WavSettings, shapes: Shapes, eager: EagerCalls) -> Token2WavEngines:
    def network(name: str, captured: list[Sizes]) -> FittedNetwork:
        cuda = Cuda(torch.device(settings.device))
        engine = open_engine(settings.backend_dir, name, shapes.profiles()[name], cuda)
        ports = GraphPorts.read(graph_of(settings.backend_dir, name))
        shapes_to_capture = [ports.input_shapes(sizes) for sizes in captured]
        compiled = TensorRTNetwork(engine, shapes_to_capture, eager=eager)
        return FittedNetwork(compiled, ports)

    return Token2WavEngines(
        encoder=network(encoder.NAME, [shapes.encoder(shape) for shape in shapes.flow_graphs])
        if encoder.NAME in networks_of(shapes.config)
        else None,
        estimator=network(estimator.NAME, [shapes.estimator(shape) for shape in shapes.flow_graphs]),
        decoder=network(vocoder.NAME, [shapes.decoder(shape) for shape in shapes.vocoder_graphs]),
        shapes=shapes,
        fit_flow=shapes.fit_flow,
        fit_vocoder=shapes.fit_vocoder,
    )
