"""The vocoder's decoder as a graph; mirrors :mod:`cosyvoice_runtime.vocoder.hift`.

F0 and the harmonic source have no graph. Phase is the running sum of F0 and both are float64, which TensorRT
lacks: float32 loses 7e-7 of F0 (measured), and after 10 s the ninth harmonic may be off by 0.1 rad. Time is
the last axis, ``[B, C, T]``.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx
import torch
from torch import nn

from cosyvoice_runtime.compiled.export import layers
from cosyvoice_runtime.compiled.export.graph import FLOAT, INT64, Graph, Value
from cosyvoice_runtime.vocoder.hift import (
    HEAD_SLOPE,
    MAX_MAGNITUDE,
    MIN_ENVELOPE,
    Decoder,
    Fourier,
    ResBlock,
    Snake,
)

NAME = "hift_decoder"
Trim = Callable[[Value], Value]


def decoder_graph(decoder: Decoder, dtype: str) -> onnx.ModelProto:
    """``mel`` ``[B, bins, T]``, ``source`` ``[B, hop * T]`` and ``frames`` int64 ``[B]`` to ``wave`` like it.

    Signals are float32 at both ends whatever ``dtype``, the type of the convolutions, is.
    """
    return _DecoderGraph(decoder, dtype).build()


class _Rows:
    """Where each row ends; the counterpart of :class:`~cosyvoice_runtime.vocoder.rows.Rows`."""

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


class _DecoderGraph:
    def __init__(self, decoder: Decoder, dtype: str) -> None:
        self.decoder, self.config = decoder, decoder.config
        self.graph = Graph(NAME, dtype)

    def build(self) -> onnx.ModelProto:
        graph, config = self.graph, self.config
        mel = graph.input("mel", FLOAT, ("batch", config.mel_bins, "frames"))
        source = graph.input("source", FLOAT, ("batch", "samples"))
        self.rows = _Rows(graph, graph.input("frames", INT64, ("batch",)), graph.size(mel, 2))
        spectrum = graph.narrow(self._transform(source))
        trim = self.rows.trim()
        hidden = trim(self._conv("conv_pre", self.decoder.conv_pre, trim(graph.narrow(mel))))
        for index in range(len(self.decoder.stages)):
            hidden = self._stage(index, hidden, spectrum)
        hidden = graph.node("LeakyRelu", hidden, alpha=HEAD_SLOPE)
        head = graph.wide(self._conv("conv_post", self.decoder.conv_post, hidden))
        limit = config.audio_limit
        wave = self._clip(self._invert(self._polar(head)), -limit, limit)
        graph.output("wave", graph.reshape(wave, (0, -1)), ("batch", "samples"))
        return graph.model()

    def _stage(self, index: int, hidden: Value, spectrum: Value) -> Value:
        graph, stage, decoder = self.graph, self.decoder.stages[index], self.decoder
        hidden = graph.node("LeakyRelu", hidden, alpha=self.config.leaky_slope)
        up = layers.members(decoder.ups, nn.ConvTranspose1d)[index]
        hidden = self._conv(f"ups.{index}", up, hidden)
        if stage.is_last:
            hidden = graph.concat([graph.slice(hidden, 2, 1, 2), hidden], 2)
        trim = self.rows.trim(stage.steps_per_frame, int(stage.is_last))
        down = layers.members(decoder.source_downs, nn.Conv1d)[index]
        source = trim(self._conv(f"source_downs.{index}", down, spectrum))
        block = layers.members(decoder.source_resblocks, ResBlock)[index]
        source = self._resblock(f"source_resblocks.{index}", block, source, trim)
        hidden = trim(hidden) + source
        kernels = len(self.config.resblock_kernels)
        blocks = layers.members(decoder.resblocks, ResBlock)
        total, *others = (
            self._resblock(f"resblocks.{number}", blocks[number], hidden, trim)
            for number in range(index * kernels, (index + 1) * kernels)
        )
        for other in others:
            total = total + other
        return total * (1 / kernels)

    def _resblock(self, name: str, block: ResBlock, signal: Value, trim: Trim) -> Value:
        snakes = (layers.members(stack, Snake) for stack in (block.activations1, block.activations2))
        convs = (layers.members(stack, nn.Conv1d) for stack in (block.convs1, block.convs2))
        for index, (snake1, snake2, conv1, conv2) in enumerate(zip(*snakes, *convs, strict=True)):
            hidden = self._snake(f"{name}.activations1.{index}", snake1, signal)
            hidden = trim(self._conv(f"{name}.convs1.{index}", conv1, hidden))
            hidden = self._snake(f"{name}.activations2.{index}", snake2, hidden)
            signal = signal + trim(self._conv(f"{name}.convs2.{index}", conv2, hidden))
        return signal

    def _snake(self, name: str, snake: Snake, signal: Value) -> Value:
        """In float32: 1 / alpha leaves the range of half precision."""
        graph = self.graph
        alpha = graph.weight(f"{name}.alpha", snake.alpha[:, None], FLOAT)
        inverse = graph.weight(f"{name}.inverse", 1 / (snake.alpha[:, None] + 1e-9), FLOAT)
        wide = graph.wide(signal)
        wave = graph.node("Sin", wide * alpha)
        return graph.narrow(wide + wave * wave * inverse)

    def _conv(self, name: str, conv: nn.Conv1d | nn.ConvTranspose1d, signal: Value) -> Value:
        """Plain or transposed, as the module is set."""
        graph = self.graph
        assert conv.bias is not None
        op = "ConvTranspose" if isinstance(conv, nn.ConvTranspose1d) else "Conv"
        weight, bias = graph.weight(f"{name}.weight", conv.weight), graph.weight(f"{name}.bias", conv.bias)
        pads = [int(conv.padding[0])] * 2
        return graph.node(op, signal, weight, bias, pads=pads, strides=conv.stride, dilations=conv.dilation)

    def _transform(self, source: Value) -> Value:
        """Spectrum ``[B, size + 2, F]`` of ``[B, samples]``, each row reflected at its own ends."""
        graph, fourier = self.graph, self.decoder.fourier
        padded = graph.unsqueeze(self._reflected(source), 1)
        basis = graph.weight("analysis", fourier.analysis[:, None], FLOAT)
        spectrum = graph.node("Conv", padded, basis, strides=[fourier.hop])
        return self.rows.trim(self.decoder.spectral_rate, 1)(spectrum)

    def _reflected(self, source: Value) -> Value:
        """``[B, size / 2 + samples + size / 2]``; the ends of short rows are where they end."""
        graph, fourier = self.graph, self.decoder.fourier
        steps = graph.arange(graph.size(source, 1) + fourier.size) - fourier.size // 2
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
        graph, fourier = self.graph, self.decoder.fourier
        trimmed = self.rows.trim(self.decoder.spectral_rate, 1)(spectrum)
        overlapped = self._overlap("synthesis", fourier, fourier.synthesis.T[:, None], trimmed)
        ones = graph.cast(self.rows.within(self.decoder.spectral_rate, 1), FLOAT)
        envelope = self._overlap("envelope", fourier, fourier.window.square()[None, None], ones)
        floor = graph.constant(MIN_ENVELOPE, FLOAT)
        return overlapped / graph.node("Max", envelope, floor)

    def _overlap(self, name: str, fourier: Fourier, weight: torch.Tensor, pieces: Value) -> Value:
        return self.graph.node(
            "ConvTranspose", pieces, self.graph.weight(name, weight, FLOAT),
            strides=[fourier.hop], pads=[fourier.size // 2] * 2,
        )  # fmt: skip

    def _clip(self, signal: Value, low: float, high: float) -> Value:
        graph = self.graph
        return graph.node("Clip", signal, graph.constant(low, FLOAT), graph.constant(high, FLOAT))
