"""Calls of the vocoder at fixed sizes, recorded once and replayed."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from cosyvoice_runtime.cuda_graphs import Recorder, next_size
from cosyvoice_runtime.vocoder.hift import HiFT
from cosyvoice_runtime.vocoder.state import VocoderState, Window
from cosyvoice_runtime.vocoder.windows import WindowInputs, WindowOutputs, compute_windows


class RecordedWindow:
    """A call of one shape."""

    def __init__(self, hift: HiFT, rows: int, width: int, record: Recorder) -> None:
        self._inputs = WindowInputs.of(hift, rows, width)
        self._recording = record(lambda: compute_windows(hift, self._inputs, *self._inputs.rows()))

    def run(self, states: Sequence[VocoderState], windows: Sequence[Window]) -> WindowOutputs:
        """As :func:`compute_windows` for these utterances."""
        self._inputs.fill_(states, windows)
        self._recording.replay()
        return WindowOutputs(*(output.clone() for output in self._recording.result))


class RecordedWindows:
    """One recording for every combination of rows and frames, both ascending, all made at the start."""

    @torch.no_grad()
    def __init__(self, hift: HiFT, rows: Sequence[int], frames: Sequence[int], record: Recorder) -> None:
        self._rows, self._frames = rows, frames
        # Largest first: the smaller ones then find their memory in the pool.
        self._windows = {
            (count, width): RecordedWindow(hift, count, width, record)
            for count in reversed(rows)
            for width in reversed(frames)
        }

    def __len__(self) -> int:
        return len(self._windows)

    @property
    def max_rows(self) -> int:
        return self._rows[-1]

    def holds(self, window: Window) -> bool:
        """Whether there is a recording for a call with this window."""
        return self.fitting([window]) is not None

    def fitting(self, windows: Sequence[Window]) -> RecordedWindow | None:
        """The smallest for a call of up to :attr:`max_rows` windows; None if one is too long for all."""
        width = max(window.frames for window in windows)
        if width > self._frames[-1]:
            return None
        return self._windows[next_size(self._rows, len(windows)), next_size(self._frames, width)]
