"""Mel of many utterances, found again by numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cosyvoice_runtime.flow.torch.batched_mel import (
    AnyMel,
    JoinedMel,
    MelCut,
    StretchedMel,
    joined_mel,
    mel_tensor,
)
from cosyvoice_runtime.vocoder.torch.window_memory import GivenMel

BINS = 3


def batch(rows: int, frames: int) -> torch.Tensor:
    return torch.randn(rows, frames, BINS, generator=torch.Generator().manual_seed(rows))


def found(given: GivenMel, mels: list[AnyMel]) -> list[torch.Tensor]:
    """What a captured call makes of the places."""
    results = []
    for left, right, weight in given.take(mels):
        first, second = given.memory[torch.from_numpy(left)], given.memory[torch.from_numpy(right)]
        results.append(first.lerp(second, torch.from_numpy(weight)[:, None]).T)
    return results


def check(given: GivenMel, mels: list[AnyMel]) -> None:
    for mel, there in zip(mels, found(given, mels), strict=True):
        assert there.shape == tuple(mel.shape)
        torch.testing.assert_close(there, mel_tensor(mel))


def stretched(mel: AnyMel, speed: float) -> StretchedMel:
    frames = int(mel.shape[1] / speed)
    place = np.minimum(np.arange(frames) * speed, mel.shape[1] - 1)
    left = place.astype(np.int64)
    right = np.minimum(left + 1, mel.shape[1] - 1)
    return StretchedMel(mel, left, right, (place - left).astype(np.float32))


@pytest.fixture
def given() -> GivenMel:
    return GivenMel(4, 12, BINS, torch.device("cpu"))


def test_cuts_of_one_batch_are_one_copy(given, monkeypatch):
    mel = batch(4, 12)
    cuts: list[AnyMel] = [MelCut(mel, row, row, 12) for row in (2, 0, 3)]
    check(given, cuts)
    monkeypatch.setattr(torch, "cat", None)
    assert torch.equal(given.memory[:48], mel.flatten(0, 1))
    check(given, cuts)


def test_all_kinds_of_mel_side_by_side(given):
    first, second, before = batch(2, 10), batch(1, 8), batch(3, 9)
    kept = MelCut(before, 1, 7, 9)
    mels: list[AnyMel] = [
        MelCut(first, 1, 2, 9),
        stretched(JoinedMel(kept, MelCut(second, 0, 0, 8)), 1.3),
        torch.randn(BINS, 5),
        torch.zeros(BINS, 0),
    ]
    check(given, mels)


def test_batches_that_are_too_large_are_copied_in_parts(given):
    large = batch(9, 30)
    check(given, [MelCut(large, row, 5, 17) for row in (8, 1, 0, 4)])


def test_fastest_speech_has_room(given):
    mel = batch(4, 60)
    check(given, [stretched(MelCut(mel, row, 10, 34), 2.0) for row in range(4)])


def test_cutting_gives_the_same_frames_as_cutting_tensors():
    mel = batch(3, 9)
    whole = joined_mel([MelCut(mel, 0, 2, 6), MelCut(mel, 2, 0, 5)])
    assert isinstance(whole, JoinedMel)
    for each in (whole, stretched(whole, 0.7), stretched(whole, 1.9), MelCut.row_of(mel, 1)):
        frames = each.shape[1]
        for start in range(frames + 1):
            for stop in range(start, frames + 1):
                torch.testing.assert_close(mel_tensor(each[:, start:stop]), each.tensor()[:, start:stop])
        assert torch.equal(mel_tensor(each[:, -2:]), each.tensor()[:, -2:])


def test_what_is_kept_of_a_joined_mel_is_a_cut():
    """It is joined to the next one for no operation, too."""
    mel = batch(2, 9)
    whole = joined_mel([MelCut(mel, 0, 7, 9), MelCut.row_of(mel, 1)])
    assert isinstance(whole[:, -2:], MelCut)
    assert isinstance(whole[:, :1], MelCut)
