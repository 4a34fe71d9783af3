"""The streams of decode steps: the whole GPU's and, beside turns of token2wav, those of parts."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial

import torch

from cosyvoice_runtime.gpu.cuda_graphs import CaptureOnParts, CudaGraphCapture, GraphCapture
from cosyvoice_runtime.gpu.partitions.shared_gpu import SharedGpu


class StepStreams:
    """One step's work follows the other's, whichever stream they go into.

    Args:
        shared: the GPU, if token2wav computes on it in this process.
    """

    def __init__(self, device: torch.device, shared: SharedGpu | None) -> None:
        self._device, self._shared = device, shared
        parts = None if shared is None else shared.parts
        of_parts = [] if parts is None else [part.stream for part in parts.all_for_steps]
        # Of its own: in one process token2wav's thread works on the same GPU.
        self._streams = [torch.cuda.Stream(device), *of_parts]
        self._last = 0
        self._captured: CaptureOnParts | None = None

    def capture(self, whole: CudaGraphCapture) -> GraphCapture:
        """For graphs that are replayed in whatever stream is next.

        Those for the part of few utterances in progress are captured beside work, if that has not begun;
        until then they are replayed on that of many.
        """
        _, *of_parts = self._streams
        if self._shared is None or not of_parts:
            return whole
        first, *others = (CudaGraphCapture(self._device, stream) for stream in of_parts)
        self._captured = CaptureOnParts([whole, first], lambda: self._last)
        if not self._shared.leave([partial(self._captured.add, capture) for capture in others]):
            self._captured = CaptureOnParts([whole, first, *others], lambda: self._last)
        return self._captured

    def next(self) -> AbstractContextManager[object]:
        """Context of the next step, which waits for the last one's work."""
        part = None if self._shared is None else self._shared.steps
        number = 0 if part is None else self._streams.index(part.stream)
        stream = self._streams[number]
        if number != self._last:
            stream.wait_stream(self._streams[self._last])
            self._last = number
        return torch.cuda.stream(stream)

    def close(self) -> None:
        """Wait for all that was launched; nothing more is captured."""
        if self._captured is not None:
            self._captured.end()
        self._streams[self._last].synchronize()
