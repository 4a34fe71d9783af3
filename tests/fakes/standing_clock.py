"""A clock that stands still until a test moves it."""

from __future__ import annotations


class StandingClock:
    """
    Attributes:
        time: what it says, in seconds.
    """

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time
