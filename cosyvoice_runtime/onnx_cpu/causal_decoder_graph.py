"""CosyVoice3's decoder as a graph for ONNX Runtime's kernels of a CPU, in pieces."""

from __future__ import annotations

from cosyvoice_runtime.onnx_cpu.hift_decoder_graph import StreamedDecoder
from cosyvoice_runtime.onnx_cpu.streamed_graph import Kernel, Signal
from cosyvoice_runtime.wave.geometry import UpsamplingStage


class CausalStreamedDecoder(StreamedDecoder):
    """The decoder of convolutions that look back; the first looks ahead and not back."""

    def _first_kernel(self) -> Kernel:
        return Kernel(self.config.first_kernel, 0)

    def _upsampled(self, name: str, hidden: Signal, stage: UpsamplingStage) -> Signal:
        return self._conv(name, self.layers.repeated(hidden, stage.rate), self._kernel(stage.kernel))

    def _source_kernel(self, stage: UpsamplingStage) -> Kernel:
        return Kernel(stage.source_kernel, stage.source_stride - 1, stage.source_stride)

    def _kernel(self, taps: int, dilation: int = 1) -> Kernel:
        return Kernel(taps, dilation * (taps - 1), dilation=dilation)
