"""The streaming vocoder on torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from cosyvoice_runtime.checkpoint.config import VocoderConfig
from cosyvoice_runtime.cuda_graphs import GraphCapture, split_rows
from cosyvoice_runtime.speed import check_speed
from cosyvoice_runtime.transfer import Fetch, moved
from cosyvoice_runtime.vocoder.carry import VocoderCarry
from cosyvoice_runtime.vocoder.graphed_windows import GraphedWindows
from cosyvoice_runtime.vocoder.hift import HiFT
from cosyvoice_runtime.vocoder.rows import Rows
from cosyvoice_runtime.vocoder.windows import WindowInputs, WindowOutputs, compute_windows
from cosyvoice_runtime.wave.vocoder_state import UtteranceNoise, VocoderState, Window
from cosyvoice_runtime.wave.windowed_vocoder import Waveforms, WindowedVocoder, WindowWave


def change_speed(mel: Tensor, speed: float) -> Tensor:
    """Mel [B, bins, T] of a whole utterance, linearly interpolated to int(T / speed) frames (at least one).

    Raises:
        InvalidInput: a speed outside 0.5 to 2.0.
    """
    check_speed(speed)
    if speed == 1:
        return mel
    return F.interpolate(mel, size=max(1, int(mel.shape[-1] / speed)), mode="linear")


def open_state(
    config: VocoderConfig,
    noise: UtteranceNoise | None = None,
    lookahead: int | None = None,
    device: torch.device | str = "cpu",
) -> VocoderState:
    """Start of an utterance on a device."""
    return VocoderState(config, VocoderCarry.at_start(config, device), noise, lookahead)


def stream(
    hift: HiFT,
    states: Sequence[VocoderState],
    mels: Sequence[Tensor],
    last: Sequence[bool],
    graphs: GraphedWindows | None = None,
) -> list[Tensor]:
    """Take the next mel of each utterance and return its next samples, as :meth:`HiFTStream.advance`."""
    return HiFTStream(hift, graphs).advance(states, mels, last)


class HiFTStream(WindowedVocoder):
    """A :class:`~cosyvoice_runtime.vocoder.hift.HiFT` over windows; mels and waves are tensors on its device.

    Args:
        graphs: replayed for all calls; longer mel is then vocoded in several.
    """

    def __init__(self, hift: HiFT, graphs: GraphedWindows | None = None) -> None:
        super().__init__(hift.config)
        self.hift = hift
        self._graphs = graphs

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
        self, states: Sequence[VocoderState], mels: Sequence[Tensor], last: Sequence[bool]
    ) -> list[Tensor]:
        return self.advanced(states, mels, last)

    def start(self) -> VocoderCarry:
        return VocoderCarry.at_start(self.config, self.device)

    def utterance_noise(self, seed: int) -> UtteranceNoise:
        return self.hift.utterance_noise(seed)

    def here(self, mel: Tensor) -> Tensor:
        return mel if mel.device == self.device else mel.to(self.device, non_blocking=True)

    def joined(self, arrays: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(arrays), dim=-1) if arrays else torch.zeros(0, device=self.device)

    def kept(self, wave: Tensor) -> Tensor:
        return wave.clone()

    def blended(self, first: Tensor, second: Tensor, weight: npt.NDArray[np.float32]) -> Tensor:
        return first.lerp(second, moved(torch.from_numpy(weight), first.device))

    def between(
        self,
        mel: Tensor,
        left: npt.NDArray[np.int64],
        right: npt.NDArray[np.int64],
        weight: npt.NDArray[np.float32],
    ) -> Tensor:
        places = moved(torch.from_numpy(np.stack([left, right])), mel.device)
        return self.blended(mel[:, places[0]], mel[:, places[1]], weight)

    def sent(self, waves: Sequence[Tensor]) -> Waveforms:
        """All waveforms in one copy."""
        if not waves:
            return list
        together, lengths = Fetch(torch.cat(list(waves)).float()), [len(wave) for wave in waves]
        return lambda: [wave.numpy() for wave in together.wait().split(lengths)]

    def parts(self, mel: Tensor) -> Sequence[Tensor]:
        if self._graphs is None or mel.shape[1] <= self._graphs.max_new_frames:
            return (mel,)
        return mel.split(self._graphs.max_new_frames, dim=1)

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
        rows = zip(outputs.wave, outputs.carried.rows(), strict=True)
        return [
            WindowWave(wave[hop * window.past :], carried)
            for (wave, carried), window in zip(rows, windows, strict=False)
        ]

    def _compute(self, states: Sequence[VocoderState], windows: Sequence[Window]) -> WindowOutputs:
        if self._graphs is not None:
            return self._graphs.fitting(windows).run(states, windows)
        rows = Rows.of([window.frames for window in windows], self.device)
        decoded = Rows.of([window.decoded for window in windows], self.device)
        inputs = WindowInputs(self.hift, len(states), rows.width)
        inputs.fill_(states, windows)
        return compute_windows(self.hift, inputs, rows, decoded)
