"""The engines that the settings of token2wav name, called as the torch modules whose place they take.

The incremental flow stays what it is: pages hold the past. The engines' modules read it into whole tensors
for the network, and write back what the network hands on. The start of an utterance is a past of zeros behind
the mask.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.checkpoint.config_flow import FlowConfig
from cosyvoice_runtime.flow.export import encoder, estimator
from cosyvoice_runtime.flow.export.estimator import STARTS
from cosyvoice_runtime.flow.torch.dit import DiT
from cosyvoice_runtime.flow.torch.encoder import FlowEncoder, LookAheadEncoder
from cosyvoice_runtime.flow.torch.estimator import Estimator
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.flow.torch.layers import Before, GatheredPages, Past
from cosyvoice_runtime.gpu.cuda_graphs import EagerCalls
from cosyvoice_runtime.manifest import require_current
from cosyvoice_runtime.settings import Token2WavSettings
from cosyvoice_runtime.tensorrt.engine import Cuda
from cosyvoice_runtime.tensorrt.engine_files import GraphPorts, open_engine
from cosyvoice_runtime.tensorrt.graph_files import graph_of, networks_of, wanted_graph
from cosyvoice_runtime.tensorrt.network import FittedNetwork, TensorRTNetwork
from cosyvoice_runtime.tensorrt.shapes import FlowShape, Shapes, Sizes, VocoderShape
from cosyvoice_runtime.vocoder import export as vocoder
from cosyvoice_runtime.vocoder.torch.source import Rows

FitFlow = Callable[[FlowShape], FlowShape]
"""The shape to compile or pad a call to; fewer rows split it."""


class EngineEncoder(nn.Module):
    """In place of :class:`~cosyvoice_runtime.flow.torch.encoder.FlowEncoder`."""

    def __init__(
        self, network: FittedNetwork, encoder: FlowEncoder | LookAheadEncoder, shapes: Shapes, fit: FitFlow
    ) -> None:
        super().__init__()
        self.token_layout, self.frame_layout = encoder.token_layout, encoder.frame_layout
        self._network, self._shapes, self._fit = network, shapes, fit
        self._config: FlowConfig = shapes.config.flow

    def forward(
        self,
        x: Tensor,
        present: Tensor,
        visible_tokens: Tensor | None,
        visible_frames: Tensor | None,
        token_past: Past,
        frame_past: Past,
    ) -> Tensor:
        rows, new = x.shape[0], x.shape[1] - self._config.lookahead_tokens
        rate = self._config.frames_per_token
        sizes = self._shapes.encoder(self._fit(FlowShape(rows, new, max(1, token_past.frames))))
        tokens = token_past.before(self.token_layout, x, new)
        frames = frame_past.before(self.frame_layout, x, rate * new)
        inputs = {
            "x": x,
            "present": present,
            "visible_tokens": _mask(visible_tokens, token_past, tokens, rows, new),
            "visible_frames": _mask(visible_frames, frame_past, frames, rows, rate * new),
            "ends": tokens.lengths,
            **_past_inputs("token_", tokens),
            **_past_inputs("frame_", frames),
        }
        outputs = self._network.run(inputs, sizes)
        token_past.store(*_additions("token_", outputs))
        frame_past.store(*_additions("frame_", outputs))
        return outputs["hidden"]


class EngineEstimator(nn.Module):
    """In place of an :class:`~cosyvoice_runtime.flow.torch.estimator.Estimator` or a `DiT`.

    A graph takes those of the inputs that it has: a `DiT`'s alone asks for starts.
    """

    def __init__(
        self, network: FittedNetwork, estimator: Estimator | DiT, shapes: Shapes, fit: FitFlow
    ) -> None:
        super().__init__()
        self.layout = estimator.layout
        self._network, self._shapes, self._fit = network, shapes, fit

    def mask(self, visible: Tensor) -> Tensor:
        """The mask itself, which the graph takes."""
        return visible

    def forward(
        self,
        x: Tensor,
        mu: Tensor,
        speaker: Tensor,
        condition: Tensor,
        time_biases: Tensor,
        visible: Tensor | None,
        past: Past,
    ) -> Tensor:
        rows, new = x.shape[:2]
        config = self._shapes.config.flow
        rate = config.frames_per_token
        shape = FlowShape(rows // config.guidance_rows, new // rate, max(1, past.frames // rate))
        sizes = self._shapes.estimator(self._fit(shape))
        before = past.before(self.layout, x, new)
        inputs = {
            "x": x,
            "mu": mu,
            "speaker": speaker,
            "condition": condition,
            "time_biases": time_biases[:, 0].to(x.dtype),
            "visible": _mask(visible, past, before, rows, new),
            "ends": before.lengths,
            **_past_inputs("", before),
            STARTS: past.starts if past.starts is not None else before.lengths.new_zeros(rows),
        }
        outputs = self._network.run(inputs, sizes)
        past.store(*_additions("", outputs))
        return outputs["velocity"]


class EngineDecoder(nn.Module):
    """In place of :class:`~cosyvoice_runtime.vocoder.torch.hift.Decoder`."""

    def __init__(
        self, network: FittedNetwork, shapes: Shapes, fit: Callable[[VocoderShape], VocoderShape]
    ) -> None:
        super().__init__()
        self._network, self._shapes, self._fit = network, shapes, fit

    def forward(self, mel: Tensor, source: Tensor, rows: Rows) -> Tensor:
        target = self._fit(VocoderShape(len(rows), rows.width))
        inputs = {"mel": mel.float(), "source": source, "frames": rows.lengths()}
        return self._network.run(inputs, self._shapes.decoder(target))["wave"]


def _mask(visible: Tensor | None, past: Past, before: Before, rows: int, new: int) -> Tensor:
    """bool ``[B, 1, T, S + T]``; what fills the past up in front is hidden."""
    keys = before.keys
    if visible is None:
        visible = torch.ones(rows, 1, new, past.frames + new, dtype=torch.bool, device=keys.device)
    return F.pad(visible, (keys.shape[2] - past.frames, 0))


def _past_inputs(prefix: str, before: Before) -> dict[str, Tensor | GatheredPages]:
    return {f"{prefix}keys": before.keys, f"{prefix}values": before.values, f"{prefix}tails": before.tails}


def _additions(prefix: str, outputs: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Keys, values and tails that the input adds to its past."""
    keys, values, tails = (outputs[f"new_{prefix}{name}"] for name in ("keys", "values", "tails"))
    return keys, values, tails


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Token2WavEngines:
    """The networks, and to which shapes their calls are padded.

    F0, source, solver and pages are torch's.

    Attributes:
        encoder: None where what comes before the estimator is torch's.
    """

    encoder: FittedNetwork | None
    estimator: FittedNetwork
    decoder: FittedNetwork
    shapes: Shapes
    fit_flow: Callable[[FlowShape], FlowShape]
    fit_vocoder: Callable[[VocoderShape], VocoderShape]

    def take(self, flow: Flow) -> None:
        """Take the place of a flow's encoder and estimator."""
        network, config = flow.network, self.shapes.config.flow
        encoder: nn.Module = network.encoder
        if self.encoder is not None:
            encoder = EngineEncoder(self.encoder, network.encoder, self.shapes, self.fit_flow)
        estimator = EngineEstimator(self.estimator, network.estimator, self.shapes, self.fit_flow)
        flow.replace(encoder, estimator, self.shapes.max_tokens * config.frames_per_token)

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
