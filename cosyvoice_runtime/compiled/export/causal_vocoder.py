"""CosyVoice3's decoder as a graph; mirrors :mod:`cosyvoice_runtime.vocoder.causal`."""

from __future__ import annotations

from cosyvoice_runtime.compiled.export.graph import Value
from cosyvoice_runtime.compiled.export.vocoder import DecoderGraph
from cosyvoice_runtime.wave.geometry import UpsamplingStage


class CausalDecoderGraph(DecoderGraph):
    """The decoder of convolutions that look back; the first looks ahead and not back."""

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
