import pytest
import torch

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.vocoder.torch import change_speed


@pytest.mark.parametrize(("speed", "frames"), [(0.5, 20), (1.3, 7), (2.0, 5)])
def test_frames_are_divided_by_speed(speed: float, frames: int) -> None:
    assert change_speed(torch.randn(1, 80, 10), speed).shape == (1, 80, frames)


def test_values_are_interpolated_linearly() -> None:
    ramp = torch.arange(8.0).expand(1, 2, 8)
    assert torch.equal(change_speed(ramp, 2.0)[0, 0], torch.tensor([0.5, 2.5, 4.5, 6.5]))


def test_normal_speed_changes_nothing() -> None:
    mel = torch.randn(1, 80, 10)
    assert change_speed(mel, 1.0) is mel


def test_single_frame_survives_double_speed() -> None:
    assert change_speed(torch.randn(1, 80, 1), 2.0).shape == (1, 80, 1)


@pytest.mark.parametrize("speed", [0.0, 0.49, 2.01, float("nan"), float("inf")])
def test_speed_outside_its_bounds_is_refused(speed: float) -> None:
    with pytest.raises(InvalidInput) as caught:
        change_speed(torch.randn(1, 80, 10), speed)
    assert caught.value.field == "speed"
