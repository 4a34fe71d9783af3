"""The streams of decode steps: the whole GPU's and, beside a turn of token2wav, that of a part."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

from cosyvoice_runtime.cuda_graphs import CudaGraphCapture, GraphCapture, TwofoldCapture
from cosyvoice_runtime.serving.shared_gpu import SharedGpu


class StepStreams:
    """One step's work follows the other's, whichever stream they go into.

    Args:
        shared: the GPU, if token2wav computes on it in this process.
    """

    def __init__(self, device: torch.device, shared: SharedGpu | None) -> None:
        self._device, self._shared = device, shared
        parts = None if shared is None else shared.parts
        self._part = None if parts is None else parts.steps.stream
        # Of its own: in one process token2wav's thread works on the same GPU.
        self._whole = self._last = torch.cuda.Stream(device)

    def capture(self, whole: CudaGraphCapture) -> GraphCapture:
        """For graphs that are replayed in whatever stream is next."""
        if self._part is None:
            return whole
        return TwofoldCapture(whole, CudaGraphCapture(self._device, self._part), self._on_part)

    def next(self) -> AbstractContextManager[object]:
        """Context of the next step, which waits for the last one's work."""
        beside_turn = self._shared is not None and self._shared.turning
        stream = self._part if beside_turn and self._part is not None else self._whole
        if stream is not self._last:
            stream.wait_stream(self._last)
            self._last = stream
        return torch.cuda.stream(stream)

    def wait(self) -> None:
        """For all that was launched."""
        self._last.synchronize()

    def _on_part(self) -> bool:
        return self._last is self._part
