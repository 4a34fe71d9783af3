"""The vocoder's networks as graphs for ONNX Runtime's kernels of a CPU: its F0 predictor and its decoder.

The decoder takes one utterance at a time, in pieces; :mod:`cosyvoice_runtime.vocoder.export` computes a
whole one. A CPU gains nothing from a batch. Signals have a second axis of one step, for which ONNX
Runtime has its faster convolutions. Snake's factors stand in the weights around it as far as they can.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add

import numpy as np
import onnx

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.checkpoint.config import VocoderConfig
from cosyvoice_runtime.onnx import layers
from cosyvoice_runtime.onnx.graph import DOUBLE, FLOAT, Graph, Value
from cosyvoice_runtime.onnx.session import HIFT_DECODER, HIFT_F0
from cosyvoice_runtime.vocoder.export import HEAD_SLOPE, MAX_MAGNITUDE, MIN_ENVELOPE, FourierBases
from cosyvoice_runtime.vocoder.geometry import EDGE_KERNEL, UpsamplingStage, stages
from cosyvoice_runtime.vocoder.onnx.streamed_graph import TIME, Kernel, Signal, StreamedGraph, spread_reach


def f0_graph(weights: Mapping[str, Array], config: VocoderConfig) -> onnx.ModelProto:
    """``mel`` ``[T, bins]`` float32 of one utterance to ``f0`` ``[T]`` float64 in Hz.

    Besides, what merges the harmonics, float32: ``source_weight`` ``[harmonics]``, ``source_bias`` ``[1]``.

    Args:
        weights: of the vocoder, by their names in it.
    """
    graph = Graph(HIFT_F0, "float64", weights)
    mel = graph.input("mel", FLOAT, ("frames", config.mel_bins))
    hidden = graph.cast(mel, DOUBLE)
    for layer, ahead in enumerate(config.f0_lookaheads):
        hidden = _elu(graph, _f0_conv(graph, f"f0_predictor.condnet.{2 * layer}", hidden, ahead))
    f0 = graph.node("Abs", layers.linear(graph, "f0_predictor.classifier", hidden))
    graph.output("f0", graph.reshape(f0, (-1,)), ("frames",))
    weight = graph.weight("m_source.l_linear.weight", weights["m_source.l_linear.weight"][0], FLOAT)
    graph.output("source_weight", weight, (config.num_harmonics + 1,))
    graph.output("source_bias", graph.weight("m_source.l_linear.bias", onnx_type=FLOAT), (1,))
    return graph.model()


def _f0_conv(graph: Graph, name: str, x: Value, ahead: int) -> Value:
    """Length-keeping convolution over ``x [T, channels]`` as one matrix product."""
    weight = graph.weights[f"{name}.weight"]
    outputs, _, kernel = weight.shape
    last = kernel - 1
    padded = graph.node("Pad", x, graph.integers(last - ahead, 0, ahead, 0))
    taps = [graph.slice(padded, 0, tap, tap - last) for tap in range(last)]
    windows = graph.concat([*taps, graph.slice(padded, 0, last, 2**31)], 1)
    weight = weight.swapaxes(1, 2).reshape(outputs, -1)
    return layers.affine(graph, name, weight, graph.weights[f"{name}.bias"], windows)


def _elu(graph: Graph, x: Value) -> Value:
    negative = graph.node("Exp", graph.node("Min", x, graph.constant(0.0, DOUBLE))) - 1.0
    return graph.node("Max", x, graph.constant(0.0, DOUBLE)) + negative


SMALLEST_ALPHA = np.float32(1e-9)


class StreamedDecoder:
    """The next ``mel`` ``[1, bins, T]`` and ``source`` ``[1, hop * T]`` to ``wave`` ``[1, n]``.

    Other ports are those of :mod:`cosyvoice_runtime.vocoder.onnx.streamed_graph`. An utterance's first piece
    has more frames than the decoder looks ahead, unless it is the last as well.

    Args:
        weights: of the decoder, by their names in it.
    """

    def __init__(self, weights: Mapping[str, Array], config: VocoderConfig) -> None:
        self.config, self.stages = config, stages(config)
        self.graph = Graph(HIFT_DECODER, "float32", weights)
        self.fourier = FourierBases.of(config.istft_size)
        self.spectral_rate = config.hop // config.istft_hop

    def build(self) -> onnx.ModelProto:
        graph, config = self.graph, self.config
        mel = graph.input("mel", FLOAT, ("batch", config.mel_bins, "frames"))
        source = graph.input("source", FLOAT, ("batch", "samples"))
        self.layers = StreamedGraph(graph)
        spectrum = self._transform(Signal(graph.unsqueeze(source, 1, 2), 1, config.hop, 0))
        first = Signal(graph.unsqueeze(mel, 2), config.mel_bins, 1, 0)
        hidden = self._conv("conv_pre", first, self._first_kernel())
        for index in range(len(self.stages)):
            hidden = self._stage(index, hidden, spectrum)
        hidden = hidden.of(graph.node("LeakyRelu", hidden.value, alpha=HEAD_SLOPE))
        wave = self._inverted(self._polar(self._conv("conv_post", hidden, self._kernel(EDGE_KERNEL))))
        limit = config.audio_limit
        clipped = graph.node("Clip", wave.value, graph.constant(-limit, FLOAT), graph.constant(limit, FLOAT))
        graph.output("wave", graph.reshape(clipped, (1, -1)), ("batch", "written"))
        return self.layers.model()

    def _stage(self, index: int, hidden: Signal, spectrum: Signal) -> Signal:
        graph, config, stage = self.graph, self.config, self.stages[index]
        hidden = hidden.of(graph.node("LeakyRelu", hidden.value, alpha=config.leaky_slope))
        hidden = self._upsampled(f"ups.{index}", hidden, stage)
        if stage.is_last:
            hidden = self._begun(hidden)
        source = self._conv(f"source_downs.{index}", spectrum, self._source_kernel(stage))
        kernel, dilations = config.source_kernels[index], config.source_dilations[index]
        source = self._resblock(f"source_resblocks.{index}", kernel, dilations, source)
        hidden = self._sum([hidden, source])
        kinds = list(zip(config.resblock_kernels, config.resblock_dilations, strict=True))
        total = self._sum(
            [
                self._resblock(f"resblocks.{index * len(kinds) + number}", *kind, hidden)
                for number, kind in enumerate(kinds)
            ]
        )
        return total.of(total.value * (1 / len(kinds)))

    def _first_kernel(self) -> Kernel:
        return self._kernel(EDGE_KERNEL)

    def _upsampled(self, name: str, hidden: Signal, stage: UpsamplingStage) -> Signal:
        return self.layers.spread(name, *self._of(name), hidden, stage.rate, stage.padding)

    def _source_kernel(self, stage: UpsamplingStage) -> Kernel:
        return Kernel(stage.source_kernel, stage.source_padding, stage.source_stride)

    def _kernel(self, taps: int, dilation: int = 1) -> Kernel:
        """A kernel that keeps the length."""
        return Kernel(taps, dilation * (taps - 1) // 2, dilation=dilation)

    def _begun(self, hidden: Signal) -> Signal:
        """The signal with its second step once more at the utterance's start."""
        graph = self.graph
        mirrored = graph.slice(hidden.value, TIME, 1, self.layers.place(self.layers.starts, 1, 1))
        longer = graph.concat([mirrored, hidden.value], TIME)
        return Signal(longer, hidden.channels, hidden.rate, hidden.delay - 1)

    def _sum(self, signals: list[Signal]) -> Signal:
        """All together, as late as the last of them."""
        latest = max(signals, key=lambda signal: signal.delay)
        values = [self.layers.delayed(signal, latest.delay).value for signal in signals]
        return latest.of(reduce(add, values))

    def _resblock(self, name: str, kernel: int, dilations: tuple[int, ...], signal: Signal) -> Signal:
        """A residual block, with ``snake(x) = (a x + sin(a x)^2) / a``.

        The convolution that follows divides by ``a``; the one before the second snake multiplies by it.
        """
        graph, layers = self.graph, self.layers
        for index, dilation in enumerate(dilations):
            one, two = (
                graph.weights[f"{name}.activations{n}.{index}.alpha"] + SMALLEST_ALPHA for n in (1, 2)
            )
            (first, bias), (second, last_bias) = (self._of(f"{name}.convs{n}.{index}") for n in (1, 2))
            wide, plain = self._kernel(kernel, dilation), self._kernel(kernel)
            read = layers.read(signal, wide)
            waved = self._waved(read * graph.weight(f"{name}.alpha.{index}", one[:, None, None], FLOAT))
            scaled = first * two[:, None, None] / one[None, :, None]
            hidden = layers.convolved(f"{name}.convs1.{index}", scaled, bias * two, signal, wide, waved)
            waved = self._waved(layers.read(hidden, plain))
            scaled = second / two[None, :, None]
            hidden = layers.convolved(f"{name}.convs2.{index}", scaled, last_bias, hidden, plain, waved)
            signal = hidden.of(layers.residual(read, wide, plain) + hidden.value)
        return signal

    def _waved(self, scaled: Value) -> Value:
        wave = self.graph.node("Sin", scaled)
        return scaled + wave * wave

    def _conv(self, name: str, signal: Signal, kernel: Kernel) -> Signal:
        return self.layers.convolved(name, *self._of(name), signal, kernel, self.layers.read(signal, kernel))

    def _of(self, name: str) -> tuple[Array, Array]:
        """A layer's weight and bias."""
        return self.graph.weights[f"{name}.weight"], self.graph.weights[f"{name}.bias"]

    def _transform(self, source: Signal) -> Signal:
        """Spectrum of the source, which is reflected at the utterance's ends."""
        graph, layers, half = self.graph, self.layers, self.config.istft_size // 2
        kernel = Kernel(2 * half, half, self.config.istft_hop)
        known = layers.continued(source, kernel.kept(source.delay), 0)
        first = self._mirrored(source.value, half, layers.place(layers.starts, half, -half))
        last = self._mirrored(known, -2, layers.place(layers.ends, -2, -half))
        read = graph.concat([first, known, last], TIME)
        return layers.convolved("analysis", self.fourier.analysis[:, None], None, source, kernel, read)

    def _mirrored(self, value: Value, start: int, end: Value) -> Value:
        """Backwards from a step to before another."""
        graph = self.graph
        return graph.node("Slice", value, graph.integers(start), end, *map(graph.integers, (TIME, -1)))

    def _polar(self, head: Signal) -> Signal:
        graph = self.graph
        log_magnitude, phase = graph.node("Split", head.value, outputs=2, axis=1, num_outputs=2)
        magnitude = graph.node("Min", graph.node("Exp", log_magnitude), graph.constant(MAX_MAGNITUDE, FLOAT))
        phase = graph.node("Sin", phase)
        parts = [magnitude * graph.node("Cos", phase), magnitude * graph.node("Sin", phase)]
        return head.of(graph.concat(parts, 1))

    def _inverted(self, spectrum: Signal) -> Signal:
        """Samples: overlap-add is a transposed convolution, and so is its envelope."""
        graph, layers = self.graph, self.layers
        size, hop = self.config.istft_size, self.config.istft_hop
        wave = layers.spread("synthesis", self.fourier.synthesis[:, None], None, spectrum, hop, size // 2)
        present = graph.cast(layers.place(layers.starts, 1, -1), FLOAT)
        before = graph.node("Expand", present, graph.integers(1, 1, 1, spread_reach(size, hop)))
        shape = graph.concat([graph.integers(1, 1, 1), graph.size(spectrum.value, TIME)], 0)
        ones = graph.node("Expand", graph.constant(1.0, FLOAT), shape)
        window = np.square(self.fourier.window)[None, None]
        envelope = layers.spread(
            "envelope", window, None, Signal(ones, 1, spectrum.rate, spectrum.delay), hop, size // 2, before
        )
        floor = graph.constant(MIN_ENVELOPE, FLOAT)
        return wave.of(wave.value / graph.node("Max", envelope.value, floor))


class CausalStreamedDecoder(StreamedDecoder):
    """CosyVoice3's decoder of convolutions that look back; the first looks ahead and not back."""

    def _first_kernel(self) -> Kernel:
        return Kernel(self.config.first_kernel, 0)

    def _upsampled(self, name: str, hidden: Signal, stage: UpsamplingStage) -> Signal:
        return self._conv(name, self.layers.repeated(hidden, stage.rate), self._kernel(stage.kernel))

    def _source_kernel(self, stage: UpsamplingStage) -> Kernel:
        return Kernel(stage.source_kernel, stage.source_stride - 1, stage.source_stride)

    def _kernel(self, taps: int, dilation: int = 1) -> Kernel:
        return Kernel(taps, dilation * (taps - 1), dilation=dilation)
