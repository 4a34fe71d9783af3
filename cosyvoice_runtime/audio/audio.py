"""A mono waveform and its sample rate."""

from __future__ import annotations

from dataclasses import dataclass

from cosyvoice_runtime.arrays import Floats


@dataclass(frozen=True, eq=False)
class Audio:
    """Mono audio. ``samples``: [n] float32, full scale [-1, 1]; ``rate``: samples per second."""

    samples: Floats
    rate: int

    @property
    def seconds(self) -> float:
        return self.samples.shape[0] / self.rate
