"""How far a precision's numbers may be from those in float32.

The errors of the demo voice, read with this check, times ten at least, or less 20 dB; those at full size lie
within as well (benchmarks/results/README.md, "What half precision changes").
"""

from __future__ import annotations

from typing import NamedTuple

SOURCE = "ten times the errors of the demo voice and of full size in benchmarks/results/README.md"


class Limit(NamedTuple):
    """
    Attributes:
        divergence: of the speech LM's draws, nats a token.
        mel, samples: dB of signal to error.
    """

    divergence: float
    mel: float
    samples: float


LIMITS = {
    "float32": Limit(1e-6, 80.0, 60.0),
    "float16": Limit(1e-3, 45.0, 35.0),
    "bfloat16": Limit(1e-2, 25.0, 15.0),
    "float8": Limit(1e-2, 40.0, 35.0),
    "int8": Limit(1e-2, 25.0, 35.0),
    "int8_rows": Limit(3e-2, 25.0, 35.0),
}
"""By number format."""
SILENT = 2.0**-15
"""Largest sample, of full scale 1, of what a listener hears nothing of: one step of 16 bits."""
CLIPPED = 0.98, 0.05
"""Level from which a sample is at its limit, and the share of samples from which speech is distorted."""
