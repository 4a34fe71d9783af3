"""How fast speech may be."""

from __future__ import annotations

from cosyvoice_runtime.errors import InvalidInput

MIN_SPEED, MAX_SPEED = 0.5, 2.0


def check_speed(speed: float) -> None:
    """Raise InvalidInput for a speed outside 0.5 to 2.0."""
    if not MIN_SPEED <= speed <= MAX_SPEED:
        raise InvalidInput("speed", speed, f"a number from {MIN_SPEED} to {MAX_SPEED}")
