"""Speaking rate."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from cosyvoice_runtime.errors import InvalidInput

MIN_SPEED, MAX_SPEED = 0.5, 2.0


def check_speed(speed: float) -> None:
    """Raise InvalidInput for a speed outside 0.5 to 2.0."""
    if not MIN_SPEED <= speed <= MAX_SPEED:
        raise InvalidInput("speed", speed, f"a number from {MIN_SPEED} to {MAX_SPEED}")


def change_speed(mel: Tensor, speed: float) -> Tensor:
    """Mel [B, bins, T] of a whole utterance, linearly interpolated to int(T / speed) frames (at least one).

    Raises:
        InvalidInput: a speed outside 0.5 to 2.0.
    """
    check_speed(speed)
    if speed == 1:
        return mel
    return F.interpolate(mel, size=max(1, int(mel.shape[-1] / speed)), mode="linear")
