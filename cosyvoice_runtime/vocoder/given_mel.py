"""The mel that windows take in, as it came from the flow: rows and frames of one tensor, found by number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from cosyvoice_runtime.batched_mel import AnyMel, MelCut, mel_tensor


class MelPlace(NamedTuple):
    """Where a window's new mel begins."""

    row: int
    frame: int


class GivenMel:
    """
    Attributes:
        memory: ``[R, F, bins]`` float32; where captured calls look, it stays.
    """

    def __init__(self, rows: int, frames: int, bins: int, device: torch.device) -> None:
        self.memory = torch.zeros(rows, frames, bins, device=device)
        self._parts: dict[tuple[int, int, int], Tensor] = {}

    def take(self, mels: Sequence[AnyMel]) -> list[MelPlace]:
        """Copy mels ``[bins, n]``, each of at most F frames and together at most R: where they are then."""
        whole = self._whole(mels)
        if whole is not None:
            return whole
        frames = [mel_tensor(mel).T for mel in mels]
        alike = len({len(mel) for mel in frames}) == 1
        self._copy(torch.stack(frames) if alike else pad_sequence(frames, batch_first=True), 0)
        return [MelPlace(row, 0) for row in range(len(mels))]

    def _whole(self, mels: Sequence[AnyMel]) -> list[MelPlace] | None:
        """As one copy for each tensor that they are cut from; None where there are others, or no room."""
        batches: dict[int, Tensor] = {}
        for mel in mels:
            if not isinstance(mel, MelCut):
                return None
            batches[id(mel.batch)] = mel.batch
        rows, frames, _ = self.memory.shape
        if sum(map(len, batches.values())) > rows or any(one.shape[1] > frames for one in batches.values()):
            return None
        first: dict[int, int] = {}
        end = 0
        for key, batch in batches.items():
            first[key] = end
            self._copy(batch, end)
            end += len(batch)
        return [
            MelPlace(first[id(mel.batch)] + mel.row, mel.start) for mel in mels if isinstance(mel, MelCut)
        ]

    def _copy(self, batch: Tensor, row: int) -> None:
        rows, frames, _ = batch.shape
        key = row, rows, frames
        if key not in self._parts:
            self._parts[key] = self.memory[row : row + rows, :frames]
        self._parts[key].copy_(batch)
