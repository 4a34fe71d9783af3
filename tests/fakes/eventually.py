"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable

TIMEOUT_S = 300.0
"""Long, for a whole server may have to start meanwhile on a slow machine."""


def eventually(holds: Callable[[], object], timeout_s: float = TIMEOUT_S) -> None:
    """Return as soon as it holds."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)
