"""A verifier for servers of tests, which by its name hears what a text tells it to hear."""

from __future__ import annotations

import numpy as np


class Hearing:
    """Finds texts mumbled that say so, and breaks at those that tell it to."""

    def __call__(self, samples, rate: int, text: str) -> list[str]:
        assert samples.dtype == np.float32
        assert len(samples) / rate > 0.2
        assert "explode" not in text
        return ["mumbled"] if "mumble" in text else []
