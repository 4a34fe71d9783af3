"""When all who spoke have gone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable

from cosyvoice_runtime.engine.batches.usage import Usage

QUIET_S = 1.0
"""By then nothing of the last turn is held any more, and the next crowd has begun if it follows at once."""
LONE_QUIET_S = 30.0
"""Whoever speaks alone has a successor sooner, for whom it is better to have memory at hand."""


class Crowd:
    """Notices that all is quiet: soon after several utterances at once, later after single ones.

    Args:
        when_gone: called then, from a thread of its own; meanwhile :meth:`look` waits.
        quiet_s: without an utterance, after several at once.
        lone_quiet_s: the same after one at a time.
    """

    def __init__(
        self,
        when_gone: Callable[[], None],
        quiet_s: float = QUIET_S,
        lone_quiet_s: float = LONE_QUIET_S,
    ) -> None:
        self._when_gone = when_gone
        self._quiet_s, self._lone_quiet_s = quiet_s, lone_quiet_s
        self._most = 0
        self._speaking: dict[Hashable, int] = {}
        self._opened: dict[Hashable, int] = {}
        self._timer: threading.Timer | None = None
        self._closed = False
        self._lock = threading.Lock()

    def look(self, scheduler: Hashable, usage: Usage) -> None:
        """To be called after every turn of each scheduler, from any thread."""
        with self._lock:
            opened = usage.voice_hits + usage.voice_misses
            self._speaking[scheduler] = usage.utterances
            # Some begin and end within one turn.
            in_turn = opened - self._opened.get(scheduler, 0)
            self._opened[scheduler] = opened
            speaking = sum(self._speaking.values())
            self._most = max(self._most, speaking, in_turn)
            if speaking or in_turn or self._closed:
                self._stop()
            if not speaking and self._most and self._timer is None and not self._closed:
                quiet_s = self._quiet_s if self._most > 1 else self._lone_quiet_s
                timer = threading.Timer(quiet_s, self._ring)
                timer.daemon = True
                timer.start()
                self._timer = timer  # not one that could not be started

    def close(self) -> None:
        """Notice nothing any more; what has been noticed is done when this returns."""
        with self._lock:
            self._closed = True
            self._stop()

    def _stop(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _ring(self) -> None:
        with self._lock:
            # Not if somebody came just now: the next look that finds all quiet sets another.
            if threading.current_thread() is self._timer:
                self._timer, self._most = None, 0
                self._when_gone()
