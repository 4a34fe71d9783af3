"""The vocoder's decoder as a graph; mirrors :mod:`cosyvoice_runtime.vocoder.torch.hift` and ``causal``.

F0 and the harmonic source have no graph. Phase is the running sum of F0 and both are float64, which TensorRT
lacks: float32 loses 7e-7 of F0 (measured), and after 10 s the ninth harmonic may be off by 0.1 rad. Time is
the last axis, ``[B, C, T]``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import pi

import numpy as np
import onnx

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.checkpoint.config import VocoderConfig
from cosyvoice_runtime.onnx.graph import FLOAT, INT64, Graph, Value
from cosyvoice_runtime.vocoder.geometry import EDGE_KERNEL, UpsamplingStage, stages

NAME = "hift_decoder"
Trim = Callable[[Value], Value]
HEAD_SLOPE = 0.01
"""Slope before the last convolution: torch's default, not the configured one."""
MAX_MAGNITUDE = 100.0
"""Cap on the spectral magnitude that the head can ask for."""
MIN_ENVELOPE = 1e-11
"""Smallest sum of squared windows to divide by, as in torch.istft."""


@dataclass(frozen=True)
class FourierBases:
    """Bases of a centred STFT with a periodic Hann window.

    Attributes:
        analysis: ``[size + 2, size]``, real parts, then imaginary ones; ``synthesis``: alike, of the inverse.
        window: ``[size]``.
    """

    analysis: Array
    synthesis: Array
    window: Array

    @classmethod
    def of(cls, size: int) -> FourierBases:
        window = 0.5 - 0.5 * np.cos(2 * pi * np.arange(size) / size)
        angle = 2 * pi / size * np.outer(np.arange(size // 2 + 1), np.arange(size))
        basis = np.concatenate([np.cos(angle), -np.sin(angle)]) * window
        weight = np.full(size // 2 + 1, 2 / size)
        weight[[0, -1]] /= 2
        return cls(basis, basis * np.tile(weight, 2)[:, None], window)


class RowEnds:
    """Where each row ends; the counterpart of :class:`~cosyvoice_runtime.vocoder.torch.source.Rows`."""

    def __init__(self, graph: Graph, frames: Value, width: Value) -> None:
        self._graph, self._frames, self._width = graph, frames, width
        self._within: dict[tuple[int, int], Value] = {}

    def lengths(self, per_frame: int = 1, extra: int = 0) -> Value:
        """int64 ``[B]``."""
        return self._frames * per_frame + extra

    def trim(self, per_frame: int = 1, extra: int = 0) -> Trim:
        """A function that zeroes what lies beyond each row's end of a ``[B, C, steps]`` signal."""
        graph, within = self._graph, self.within(per_frame, extra)

        def trim(signal: Value) -> Value:
            zero = graph.constant(0.0, signal.type)
            return graph.node("Where", within, signal, zero, onnx_type=signal.type)

        return trim

    def within(self, per_frame: int, extra: int) -> Value:
        """bool ``[B, 1, steps]``."""
        key = per_frame, extra
        if key not in self._within:
            steps = self._graph.arange(self._width * per_frame + extra)
            ends = self._graph.unsqueeze(self.lengths(per_frame, extra), 1, 2)
            self._within[key] = steps < ends
        return self._within[key]


class DecoderGraph:
    """``mel`` ``[B, bins, T]``, ``source`` ``[B, hop * T]`` and ``frames`` int64 ``[B]`` to ``wave`` like it.

    Signals are float32 at both ends whatever ``dtype``, the type of the convolutions, is.

    Args:
        weights: of the decoder, by their names in it.
        name: of the graph.
    """

    def __init__(
        self, weights: Mapping[str, Array], config: VocoderConfig, dtype: str, name: str = NAME
    ) -> None:
        self.config, self.stages = config, stages(config)
        self.graph = Graph(name, dtype, weights)
        self.fourier = FourierBases.of(config.istft_size)
        self.spectral_rate = config.hop // config.istft_hop

    def build(self) -> onnx.ModelProto:
        graph, config = self.graph, self.config
        mel = graph.input("mel", FLOAT, ("batch", config.mel_bins, "frames"))
        source = graph.input("source", FLOAT, ("batch", "samples"))
        self.rows = self._rows(mel)
        spectrum = graph.narrow(self._transform(source))
        trim = self.rows.trim()
        hidden = trim(self._first_conv("conv_pre", trim(graph.narrow(mel))))
        for index in range(len(self.stages)):
            hidden = self._stage(index, hidden, spectrum)
        hidden = graph.node("LeakyRelu", graph.wide(hidden), alpha=HEAD_SLOPE)
        head = self._length_keeping("conv_post", hidden, EDGE_KERNEL)
        limit = config.audio_limit
        wave = self._clip(self._invert(self._polar(head)), -limit, limit)
        graph.output("wave", graph.reshape(wave, (0, -1)), ("batch", "samples"))
        return graph.model()

    def _rows(self, mel: Value) -> RowEnds:
        return RowEnds(self.graph, self.graph.input("frames", INT64, ("batch",)), self.graph.size(mel, 2))

    def _stage(self, index: int, hidden: Value, spectrum: Value) -> Value:
        graph, config, stage = self.graph, self.config, self.stages[index]
        hidden = graph.node("LeakyRelu", hidden, alpha=config.leaky_slope)
        hidden = self._upsampled(f"ups.{index}", hidden, stage)
        if stage.is_last:
            hidden = graph.concat([graph.slice(hidden, 2, 1, 2), hidden], 2)
        trim = self.rows.trim(stage.steps_per_frame, int(stage.is_last))
        source = self._source_conv(f"source_downs.{index}", spectrum, stage)
        kernel, dilations = config.source_kernels[index], config.source_dilations[index]
        source = self._resblock(f"source_resblocks.{index}", kernel, dilations, trim(source), trim)
        hidden = trim(hidden) + source
        kinds = list(zip(config.resblock_kernels, config.resblock_dilations, strict=True))
        total, *others = (
            self._resblock(f"resblocks.{index * len(kinds) + number}", *kind, hidden, trim)
            for number, kind in enumerate(kinds)
        )
        for other in others:
            total = total + other
        return total * (1 / len(kinds))

    def _resblock(
        self, name: str, kernel: int, dilations: tuple[int, ...], signal: Value, trim: Trim
    ) -> Value:
        for index, dilation in enumerate(dilations):
            hidden = self._snake(f"{name}.activations1.{index}", signal)
            hidden = trim(self._length_keeping(f"{name}.convs1.{index}", hidden, kernel, dilation))
            hidden = self._snake(f"{name}.activations2.{index}", hidden)
            signal = signal + trim(self._length_keeping(f"{name}.convs2.{index}", hidden, kernel))
        return signal

    def _snake(self, name: str, signal: Value) -> Value:
        """In float32: 1 / alpha leaves the range of half precision."""
        graph = self.graph
        values = graph.weights[f"{name}.alpha"][:, None].astype(np.float32)
        alpha = graph.weight(f"{name}.alpha", values, FLOAT)
        inverse = graph.weight(f"{name}.inverse", 1 / (values + np.float32(1e-9)), FLOAT)
        wide = graph.wide(signal)
        wave = graph.node("Sin", wide * alpha)
        return graph.narrow(wide + wave * wave * inverse)

    def _first_conv(self, name: str, mel: Value) -> Value:
        return self._length_keeping(name, mel, EDGE_KERNEL)

    def _upsampled(self, name: str, hidden: Value, stage: UpsamplingStage) -> Value:
        return self._conv(name, hidden, (stage.padding,) * 2, stage.rate, op="ConvTranspose")

    def _source_conv(self, name: str, spectrum: Value, stage: UpsamplingStage) -> Value:
        return self._conv(name, spectrum, (stage.source_padding,) * 2, stage.source_stride)

    def _length_keeping(self, name: str, signal: Value, kernel: int, dilation: int = 1) -> Value:
        return self._conv(name, signal, (dilation * (kernel - 1) // 2,) * 2, dilation=dilation)

    def _conv(
        self,
        name: str,
        signal: Value,
        edges: tuple[int, int],
        stride: int = 1,
        dilation: int = 1,
        op: str = "Conv",
    ) -> Value:
        """The layer of this name in the signal's type, with so many zeros before and after."""
        graph = self.graph
        weight, bias = (graph.weight(f"{name}.{part}", onnx_type=signal.type) for part in ("weight", "bias"))
        return graph.node(op, signal, weight, bias, pads=edges, strides=[stride], dilations=[dilation])

    def _transform(self, source: Value) -> Value:
        """Spectrum ``[B, size + 2, F]`` of ``[B, samples]``, each row reflected at its own ends."""
        graph, config = self.graph, self.config
        padded = graph.unsqueeze(self._reflected(source), 1)
        basis = graph.weight("analysis", self.fourier.analysis[:, None], FLOAT)
        spectrum = graph.node("Conv", padded, basis, strides=[config.istft_hop])
        return self.rows.trim(self.spectral_rate, 1)(spectrum)

    def _reflected(self, source: Value) -> Value:
        """``[B, size / 2 + samples + size / 2]``; the ends of short rows are where they end."""
        graph, size = self.graph, self.config.istft_size
        steps = graph.arange(graph.size(source, 1) + size) - size // 2
        ends = graph.unsqueeze(self.rows.lengths(self.config.hop), 1)
        back = (ends - 1) * 2 - steps
        places = graph.node("Min", graph.node("Abs", steps), back)
        # What lies further beyond the end of a short row is trimmed later, whatever is read here.
        places = graph.node("Max", places, graph.constant(0, INT64))
        reflected: Value = graph.node("GatherElements", source, places, axis=1)
        return reflected

    def _polar(self, head: Value) -> Value:
        graph = self.graph
        log_magnitude, phase = graph.node("Split", head, outputs=2, axis=1, num_outputs=2)
        magnitude = graph.node("Min", graph.node("Exp", log_magnitude), graph.constant(MAX_MAGNITUDE, FLOAT))
        phase = graph.node("Sin", phase)
        return graph.concat([magnitude * graph.node("Cos", phase), magnitude * graph.node("Sin", phase)], 1)

    def _invert(self, spectrum: Value) -> Value:
        """Signal ``[B, 1, samples]``: overlap-add is a transposed convolution, and so is its envelope."""
        graph = self.graph
        trimmed = self.rows.trim(self.spectral_rate, 1)(spectrum)
        overlapped = self._overlap("synthesis", self.fourier.synthesis[:, None], trimmed)
        ones = graph.cast(self.rows.within(self.spectral_rate, 1), FLOAT)
        envelope = self._overlap("envelope", np.square(self.fourier.window)[None, None], ones)
        floor = graph.constant(MIN_ENVELOPE, FLOAT)
        return overlapped / graph.node("Max", envelope, floor)

    def _overlap(self, name: str, weight: Array, pieces: Value) -> Value:
        size, hop = self.config.istft_size, self.config.istft_hop
        kernel = self.graph.weight(name, weight, FLOAT)
        return self.graph.node("ConvTranspose", pieces, kernel, strides=[hop], pads=[size // 2] * 2)

    def _clip(self, signal: Value, low: float, high: float) -> Value:
        graph = self.graph
        return graph.node("Clip", signal, graph.constant(low, FLOAT), graph.constant(high, FLOAT))


class CausalDecoderGraph(DecoderGraph):
    """CosyVoice3's decoder of convolutions that look back; the first looks ahead and not back."""

    def _first_conv(self, name: str, mel: Value) -> Value:
        return self._conv(name, mel, (0, self.config.first_kernel - 1))

    def _upsampled(self, name: str, hidden: Value, stage: UpsamplingStage) -> Value:
        """Each step as often as the stage says, then a convolution."""
        graph = self.graph
        repeated = graph.concat([graph.unsqueeze(hidden, 3)] * stage.rate, 3)
        return self._conv(name, graph.reshape(repeated, (0, 0, -1)), (stage.kernel - 1, 0))

    def _source_conv(self, name: str, spectrum: Value, stage: UpsamplingStage) -> Value:
        return self._conv(name, spectrum, (stage.source_stride - 1, 0), stage.source_stride)

    def _length_keeping(self, name: str, signal: Value, kernel: int, dilation: int = 1) -> Value:
        return self._conv(name, signal, (dilation * (kernel - 1), 0), dilation=dilation)
