"""A mono waveform, and the rates and speeds that it may have."""

from __future__ import annotations

from dataclasses import dataclass

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.errors import InvalidInput

EXTRACTOR_SAMPLE_RATE = 16_000
"""Hz that the speech tokenizer and the speaker encoder take, and so the least of a reference."""


@dataclass(frozen=True, eq=False)
class Audio:
    """Mono audio. ``samples``: [n] float32, full scale [-1, 1]; ``rate``: samples per second."""

    samples: Floats
    rate: int

    @property
    def seconds(self) -> float:
        return self.samples.shape[0] / self.rate


MIN_SPEED, MAX_SPEED = 0.5, 2.0


def check_speed(speed: float) -> None:
    """Raise InvalidInput for a speed outside 0.5 to 2.0."""
    if not MIN_SPEED <= speed <= MAX_SPEED:
        raise InvalidInput("speed", speed, f"a number from {MIN_SPEED} to {MAX_SPEED}")
