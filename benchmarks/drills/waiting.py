"""Waiting for what other processes do."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 300.0
"""Long, for a whole server may have to start meanwhile on a slow machine."""
LOOK_S = 0.02


def wait_until(holds: Callable[[], object], what: str) -> float:
    """Return, as soon as it holds, the seconds that it took; ``what`` is the complaint if it never does."""
    begun = time.monotonic()
    while not holds():
        if time.monotonic() - begun > PATIENCE_S:
            raise TimeoutError(f"{what} within {PATIENCE_S:g} s")
        time.sleep(LOOK_S)
    return time.monotonic() - begun
