"""The streaming vocoder on torch, and its waves on their way to the host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

import numpy as np
import numpy.typing as npt
import torch

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.flow.torch.batched_mel import (
    AnyMel,
    MelCut,
    StoredMel,
    StretchedMel,
    joined_mel,
    mel_tensor,
)
from cosyvoice_runtime.gpu.cuda_graphs import GraphCapture, split_rows
from cosyvoice_runtime.gpu.transfer import Fetch
from cosyvoice_runtime.vocoder.state import UtteranceNoise, VocoderState, Window
from cosyvoice_runtime.vocoder.torch.hift import HiFT
from cosyvoice_runtime.vocoder.torch.source import Rows
from cosyvoice_runtime.vocoder.torch.window_memory import VocoderCarry, carry_layout
from cosyvoice_runtime.vocoder.torch.windows import (
    GraphedWindows,
    WindowInputs,
    WindowOutputs,
    compute_windows,
)
from cosyvoice_runtime.vocoder.windowed_vocoder import Wave, WindowedVocoder, WindowWave


class HiFTStream(WindowedVocoder):
    """A :class:`~cosyvoice_runtime.vocoder.torch.hift.HiFT` over windows.

    Mels are on its device, tensors or cut from some; waves are on their way to the host.

    Args:
        graphs: replayed for all calls; longer mel is then vocoded in several.
        own_stream: a stream of the device for all of its work, which goes on while the flow computes.
    """

    def __init__(
        self, hift: HiFT, graphs: GraphedWindows | None = None, own_stream: torch.cuda.Stream | None = None
    ) -> None:
        super().__init__(hift.config)
        self.hift = hift
        self._graphs, self.own_stream = graphs, own_stream

    @property
    def fused(self) -> bool:
        return self.hift.fused

    @property
    def device(self) -> torch.device:
        return self.hift.device

    def capture(self, rows: Sequence[int], frames: Sequence[int], capture: GraphCapture) -> int:
        """Replay calls of these sizes from now on; the number of captured calls."""
        self._graphs = GraphedWindows(self.hift, rows, frames, capture)
        return len(self._graphs)

    @torch.no_grad()
    def advance(
        self, states: Sequence[VocoderState], mels: Sequence[AnyMel], last: Sequence[bool]
    ) -> list[Wave]:
        return super().advance(states, mels, last)

    def start(self) -> VocoderCarry:
        return carry_layout(self.config, self.device).start

    def utterance_noise(self, seed: int) -> UtteranceNoise:
        return self.hift.utterance_noise(seed)

    def here(self, mel: AnyMel) -> AnyMel:
        if isinstance(mel, MelCut) and mel.batch.device == self.device:
            return mel
        mel = mel_tensor(mel)
        return mel if mel.device == self.device else mel.to(self.device, non_blocking=True)

    def joined_mel(self, mels: Sequence[AnyMel]) -> StoredMel:
        return joined_mel(mels)

    def blended(self, first: Floats, second: Floats, weight: Floats) -> Floats:
        """Interpolate with the rounding of torch."""
        return torch.lerp(*map(torch.from_numpy, (first, second, weight))).numpy()

    def between(
        self, mel: StoredMel, left: npt.NDArray[np.int64], right: npt.NDArray[np.int64], weight: Floats
    ) -> StretchedMel:
        return StretchedMel(mel, left, right, weight)

    def concurrent(self) -> AbstractContextManager[object]:
        if self.own_stream is None:
            return super().concurrent()
        self.own_stream.wait_stream(torch.cuda.current_stream(self.device))
        return torch.cuda.stream(self.own_stream)

    def pieces(self, mel: AnyMel) -> Sequence[AnyMel]:
        if self._graphs is None or mel.shape[1] <= self._graphs.max_new_frames:
            return (mel,)
        most = self._graphs.max_new_frames
        return [mel[:, start : start + most] for start in range(0, mel.shape[1], most)]

    def calls(self, rows: Sequence[int], windows: Mapping[int, Window]) -> Iterator[Sequence[int]]:
        """Captured calls pad to their own width, so windows of another go in another call."""
        if self._graphs is None:
            yield from super().calls(rows, windows)
            return
        widths: dict[int, list[int]] = {}
        for row in rows:
            widths.setdefault(self._graphs.width(windows[row]), []).append(row)
        for alike in widths.values():
            yield from split_rows(alike, self._graphs.max_rows)

    def computed(self, states: Sequence[VocoderState], windows: Sequence[Window]) -> Iterable[WindowWave]:
        outputs, hop = self._compute(states, windows), self.config.hop
        layout, waves = carry_layout(self.config, self.device), Fetch(outputs.wave)
        end = outputs.wave.shape[1]
        return [
            WindowWave(_samples(waves, row, hop * window.past, end), VocoderCarry(flat, layout))
            for row, (flat, window) in enumerate(zip(outputs.carried.unbind(), windows, strict=False))
        ]

    def _compute(self, states: Sequence[VocoderState], windows: Sequence[Window]) -> WindowOutputs:
        if self._graphs is not None:
            return self._graphs.fitting(windows).run(states, windows)
        rows = Rows.of([window.frames for window in windows], self.device)
        decoded = Rows.of([window.decoded for window in windows], self.device)
        inputs = WindowInputs(self.hift, len(states), rows.width)
        inputs.fill_(states, windows)
        return compute_windows(self.hift, inputs, rows, decoded)


def _samples(waves: Fetch, row: int, start: int, end: int) -> Wave:
    """The samples ``start:end`` of a row of waves ``[B, end]`` that are on their way to the host."""
    return Wave(end - start, lambda: waves.array()[row, start:])
