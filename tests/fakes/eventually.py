"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable

TIMEOUT_S = 120.0


def eventually(holds: Callable[[], object]) -> None:
    """Return as soon as it holds."""
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)
