"""When many have spoken and all have gone."""

from __future__ import annotations

import threading
from collections.abc import Callable

from cosyvoice_runtime.serving.token2wav.usage import Usage

QUIET_S = 1.0
"""By then nothing of the last turn is held any more, and the next crowd has begun if it follows at once."""


class Crowd:
    """Notices that all is quiet after several utterances at once. One alone is none: it soon has a successor.

    Args:
        when_gone: called then, from a thread of its own.
        when_idle: calls what it is given unless somebody speaks, and not while :meth:`look` is called.
        quiet_s: without an utterance.
    """

    def __init__(
        self,
        when_gone: Callable[[], None],
        when_idle: Callable[[Callable[[], None]], None],
        quiet_s: float = QUIET_S,
    ) -> None:
        self._when_gone, self._when_idle = when_gone, when_idle
        self._quiet_s = quiet_s
        self._most = self._opened = 0
        self._timer: threading.Timer | None = None

    def look(self, usage: Usage) -> None:
        """To be called after every turn, by one thread at a time."""
        opened = usage.voice_hits + usage.voice_misses
        # Some begin and end within one turn.
        self._most = max(self._most, usage.utterances, opened - self._opened)
        self._opened = opened
        if usage.utterances:
            self._stop()
        elif self._most > 1 and self._timer is None:
            self._timer = threading.Timer(self._quiet_s, self._ring)
            self._timer.daemon = True
            self._timer.start()

    def _stop(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _ring(self) -> None:
        self._timer = None  # first: if somebody speaks just now, the next look sets another
        self._when_idle(self._leave)

    def _leave(self) -> None:
        self._most = 0
        self._when_gone()
