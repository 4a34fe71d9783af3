from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.token2wav.speed_change import SpeedChange
from vocoder_calls import change_speed

speeds = st.floats(0.5, 2.0)


def mel_of(frames: int) -> torch.Tensor:
    return torch.randn(5, frames, generator=torch.Generator().manual_seed(frames))


def change_of(speed: float) -> SpeedChange:
    return SpeedChange(
        speed,
        lambda mels: torch.cat(mels, dim=1),
        lambda mel, left, right, weight: mel[:, left].lerp(mel[:, right], torch.from_numpy(weight)),
    )


def in_portions(mel: torch.Tensor, sizes: list[int], speed: float) -> torch.Tensor:
    change, pieces = change_of(speed), []
    for size in sizes:
        pieces.append(change.push(mel[:, :size], last=False))
        mel = mel[:, size:]
    pieces.append(change.push(mel, last=True))
    return torch.cat(pieces, dim=1)


@given(st.integers(0, 120), st.lists(st.integers(0, 40), max_size=6), speeds)
def test_any_portions_give_the_same_frames(frames, sizes, speed):
    mel = mel_of(frames)
    whole = in_portions(mel, [], speed)
    torch.testing.assert_close(in_portions(mel, sizes, speed), whole, atol=1e-6, rtol=0)
    assert abs(whole.shape[1] - frames / speed) <= 1


@given(st.integers(20, 200), speeds)
def test_stays_within_one_output_frame_of_the_whole_utterance_formula(frames, speed):
    ramp = torch.arange(frames, dtype=torch.float32)[None]
    ours, theirs = in_portions(ramp, [], speed), change_speed(ramp[None], speed)[0]
    common = min(ours.shape[1], theirs.shape[1])
    assert (ours[:, :common] - theirs[:, :common]).abs().max() < speed


def test_speed_one_changes_nothing():
    mel = mel_of(30)
    assert change_of(1.0).push(mel, last=False) is mel


@pytest.mark.parametrize("speed", [0.0, 0.49, 2.01, float("nan"), float("inf"), -1.0])
def test_speed_out_of_range_is_refused(speed):
    with pytest.raises(InvalidInput, match=r"speed: .* is not accepted; a number from 0.5 to 2.0"):
        change_of(speed)
