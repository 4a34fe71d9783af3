"""The vocoder's decoder as a graph for ONNX Runtime's kernels of a CPU; one utterance at a time.

What :mod:`cosyvoice_runtime.compiled.export.vocoder` computes, without the zeros beyond shorter rows: a CPU
gains nothing from rows side by side. Convolutions have a second axis of one step, for which ONNX Runtime has
its faster kernels. Snake's factors stand in the weights around it as far as they can.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.checkpoint.config import VocoderConfig
from cosyvoice_runtime.compiled.export.graph import FLOAT, Graph, Value
from cosyvoice_runtime.compiled.export.vocoder import DecoderGraph, RowEnds, Trim

NAME = "hift_decoder_cpu"
SMALLEST_ALPHA = np.float32(1e-9)


def decoder_graph(weights: Mapping[str, Array], config: VocoderConfig) -> onnx.ModelProto:
    """``mel`` ``[1, bins, T]`` and ``source`` ``[1, hop * T]`` to ``wave`` like it.

    Args:
        weights: of the decoder, by their names in it.
    """
    return _CpuDecoder(weights, config, "float32", NAME).build()


class _WholeRow(RowEnds):
    """One row, which nothing lies beyond."""

    def __init__(self, graph: Graph, width: Value) -> None:
        super().__init__(graph, width, width)

    def trim(self, per_frame: int = 1, extra: int = 0) -> Trim:  # noqa: ARG002
        return lambda signal: signal


class _CpuDecoder(DecoderGraph):
    def _rows(self, mel: Value) -> RowEnds:
        return _WholeRow(self.graph, self.graph.size(mel, 2))

    def _resblock(
        self,
        name: str,
        kernel: int,
        dilations: tuple[int, ...],
        signal: Value,
        trim: Trim,  # noqa: ARG002
    ) -> Value:
        """With ``snake(x) = (a x + sin(a x)^2) / a``.

        The convolution that follows divides by ``a``; the one before the second snake multiplies by it.
        """
        graph, weights = self.graph, self.graph.weights
        for index, dilation in enumerate(dilations):
            first, second = (weights[f"{name}.activations{n}.{index}.alpha"] + SMALLEST_ALPHA for n in (1, 2))
            convs = [f"{name}.convs{n}.{index}" for n in (1, 2)]
            scaled = weights[f"{convs[0]}.weight"] * second[:, None, None] / first[None, :, None]
            hidden = self._waved(signal * graph.weight(f"{name}.alpha.{index}", first[:, None], FLOAT))
            hidden = self._convolved(
                convs[0], scaled, weights[f"{convs[0]}.bias"] * second, hidden,
                dilation * (kernel - 1) // 2, 1, dilation,
            )  # fmt: skip
            scaled = weights[f"{convs[1]}.weight"] / second[None, :, None]
            hidden = self._convolved(
                convs[1], scaled, weights[f"{convs[1]}.bias"], self._waved(hidden), (kernel - 1) // 2
            )
            signal = signal + hidden
        return signal

    def _waved(self, scaled: Value) -> Value:
        wave = self.graph.node("Sin", scaled)
        return scaled + wave * wave

    def _conv(
        self, name: str, signal: Value, edge: int, stride: int = 1, dilation: int = 1, op: str = "Conv"
    ) -> Value:
        weights = self.graph.weights
        weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
        return self._convolved(name, weight, bias, signal, edge, stride, dilation, op)

    def _convolved(
        self,
        name: str,
        weight: Array,
        bias: Array,
        signal: Value,
        edge: int,
        stride: int = 1,
        dilation: int = 1,
        op: str = "Conv",
    ) -> Value:
        graph = self.graph
        flat = graph.node(
            op, graph.unsqueeze(signal, 2), graph.weight(f"{name}.weight", weight[:, :, None]),
            graph.weight(f"{name}.bias", bias),
            pads=[0, edge, 0, edge], strides=[1, stride], dilations=[1, dilation],
        )  # fmt: skip
        return graph.node("Squeeze", flat, graph.integers(2))
