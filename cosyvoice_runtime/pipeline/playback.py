"""What a client that plays audio as it arrives still has to play."""

from __future__ import annotations

from collections.abc import Callable


class Playback:
    """A clock that starts with the first chunk and runs dry when chunks come late.

    Args:
        now: seconds, from any start.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._end: float | None = None
        self.seconds = 0.0
        """Seconds of audio sent."""
        self.underruns = 0
        """Times that a chunk came after the audio before it had been played."""

    @property
    def cushion_s(self) -> float:
        """Seconds of audio sent and not yet played."""
        return 0.0 if self._end is None else max(self._end - self._now(), 0.0)

    def sent(self, seconds: float) -> None:
        """Note a chunk that was sent just now."""
        self.seconds += seconds
        now = self._now()
        if self._end is not None and now > self._end:
            self.underruns += 1
        self._end = seconds + (now if self._end is None else max(self._end, now))
