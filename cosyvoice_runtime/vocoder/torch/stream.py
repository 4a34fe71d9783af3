"""The streaming vocoder on torch, and its waves on their way to the host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

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
from cosyvoice_runtime.vocoder.windowed_vocoder import Waveforms, WindowedVocoder, WindowWave

Samples = npt.NDArray[np.float32]


class HeardWindows:
    """Waves of a call, sent to the host at once.

    Args:
        waves: float32 ``[B, samples]`` on the device, until the next call.
    """

    def __init__(self, waves: Tensor) -> None:
        self._fetch = Fetch(waves)
        self._arrays: Samples | None = None

    def arrays(self) -> Samples:
        """``[B, samples]`` of the host, once they are there."""
        if self._arrays is None:
            self._arrays = self._fetch.array()
        return self._arrays


class HeardWave(Protocol):
    """Samples of one utterance, which may still be on their way."""

    def __len__(self) -> int: ...

    def array(self) -> Samples:
        """``[n]``, once they are there."""


@dataclass(frozen=True, eq=False)
class WaveCut:
    """Samples of one window."""

    windows: HeardWindows
    row: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, place: slice) -> WaveCut:
        start, stop, step = place.indices(len(self))
        assert step == 1
        return replace(self, start=self.start + start, stop=self.start + max(start, stop))

    @property
    def nbytes(self) -> int:
        return np.dtype(np.float32).itemsize * len(self)

    def array(self) -> Samples:
        return self.windows.arrays()[self.row, self.start : self.stop]


@dataclass(frozen=True, eq=False)
class JoinedWave:
    """Samples one after the other."""

    parts: Sequence[HeardWave]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def array(self) -> Samples:
        return np.concatenate([np.zeros(0, np.float32), *(part.array() for part in self.parts)])


@dataclass(frozen=True, eq=False)
class BlendedWave:
    """On the way from the first samples to the second by ``weight``."""

    first: HeardWave
    second: HeardWave
    weight: Samples

    def __len__(self) -> int:
        return len(self.weight)

    def array(self) -> Samples:
        first, second, weight = map(torch.from_numpy, (self.first.array(), self.second.array(), self.weight))
        return first.lerp(second, weight).numpy()


class HiFTStream(WindowedVocoder):
    """A :class:`~cosyvoice_runtime.vocoder.torch.hift.HiFT` over windows.

    Mels are on its device, tensors or cut from some; waves are on their way to the host.

    Args:
        graphs: replayed for all calls; longer mel is then vocoded in several.
        own_stream: of the device, for all of its work: it goes on beside the flow's.
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
    ) -> list[HeardWave]:
        return self.advanced(states, mels, last)

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

    def joined(self, waves: Sequence[HeardWave]) -> JoinedWave:
        return JoinedWave(waves)

    def kept(self, wave: WaveCut) -> WaveCut:
        """As it is: what it is cut from is memory of the host."""
        return wave

    def blended(self, first: HeardWave, second: HeardWave, weight: npt.NDArray[np.float32]) -> BlendedWave:
        return BlendedWave(first, second, weight)

    def between(
        self,
        mel: StoredMel,
        left: npt.NDArray[np.int64],
        right: npt.NDArray[np.int64],
        weight: npt.NDArray[np.float32],
    ) -> StretchedMel:
        return StretchedMel(mel, left, right, weight)

    def beside(self) -> AbstractContextManager[object]:
        if self.own_stream is None:
            return super().beside()
        self.own_stream.wait_stream(torch.cuda.current_stream(self.device))
        return torch.cuda.stream(self.own_stream)

    def sent(self, waves: Sequence[HeardWave]) -> Waveforms:
        """They are on their way."""
        return lambda: [wave.array() for wave in waves]

    def parts(self, mel: AnyMel) -> Sequence[AnyMel]:
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
        layout, heard = carry_layout(self.config, self.device), HeardWindows(outputs.wave)
        samples = outputs.wave.shape[1]
        return [
            WindowWave(WaveCut(heard, row, hop * window.past, samples), VocoderCarry(flat, layout))
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
