"""Calls of the vocoder at fixed sizes, captured once and replayed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cosyvoice_runtime.gpu.buckets import bucket_for
from cosyvoice_runtime.gpu.cuda_graphs import GraphCapture
from cosyvoice_runtime.vocoder.context import context
from cosyvoice_runtime.vocoder.state import VocoderState, Window
from cosyvoice_runtime.vocoder.torch.given_mel import GivenMel
from cosyvoice_runtime.vocoder.torch.hift import HiFT
from cosyvoice_runtime.vocoder.torch.windows import WindowInputs, WindowOutputs, compute_windows


class GraphedWindow:
    """A call of one shape."""

    def __init__(self, hift: HiFT, rows: int, width: int, given: GivenMel, capture: GraphCapture) -> None:
        self._inputs = WindowInputs(hift, rows, width, given)
        self._graph = capture(lambda: compute_windows(hift, self._inputs, *self._inputs.rows()))
        self._waves: dict[int, tuple[Tensor, Tensor]] = {}

    def run(self, states: Sequence[VocoderState], windows: Sequence[Window]) -> WindowOutputs:
        """As :func:`compute_windows` for these utterances; the next call overwrites the waves."""
        self._inputs.fill_(states, windows)
        self._graph.replay()
        result, count = self._graph.result, len(states)
        whole, waves = self._waves.get(count, (None, result.wave))
        if whole is not result.wave:  # a graph may leave its result in one of several places
            waves = result.wave[:count]
            self._waves[count] = result.wave, waves
        return WindowOutputs(waves, result.carried.clone())


class GraphedWindows:
    """A captured call for every combination of rows and frames, both ascending, all made at the start.

    One runs at a time, so they share the memory of the mel that they take in.

    Raises:
        ValueError: the most frames are too few for any new ones.

    Attributes:
        max_rows: most windows of a call.
        max_new_frames: most mel frames that an utterance may take in between two calls.
    """

    @torch.no_grad()
    def __init__(self, hift: HiFT, rows: Sequence[int], frames: Sequence[int], capture: GraphCapture) -> None:
        around = context(hift.config)
        self.max_rows = rows[-1]
        self.max_new_frames = frames[-1] - around.left - around.lookahead
        if self.max_new_frames < 1:
            raise ValueError(f"windows of {frames[-1]} frames hold no new ones")
        self._rows, self._frames = rows, frames
        given = GivenMel(rows[-1], frames[-1], hift.config.mel_bins, hift.device)
        # Largest first: the smaller ones then find their memory in the pool.
        self._windows = {
            (count, width): GraphedWindow(hift, count, width, given, capture)
            for count in reversed(rows)
            for width in reversed(frames)
        }

    def __len__(self) -> int:
        return len(self._windows)

    def fitting(self, windows: Sequence[Window]) -> GraphedWindow:
        """The smallest for a call of up to :attr:`max_rows` windows."""
        width = max(self.width(window) for window in windows)
        return self._windows[bucket_for(self._rows, len(windows)), width]

    def width(self, window: Window) -> int:
        """Frames of the call that a window would have for itself."""
        return bucket_for(self._frames, window.frames)
