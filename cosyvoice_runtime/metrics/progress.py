"""How far a model's start is: pieces of work that are counted, in the log and in the metrics."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from cosyvoice_runtime.metrics.metrics import Metrics

STEPS, STEPS_ABOUT = "cosyvoice_start_steps", "Pieces of work of the model's start, by kind."
DONE, DONE_ABOUT = "cosyvoice_start_steps_done", "Those that are done."
TOLD_EVERY_S = 10.0

_log = logging.getLogger(__name__)


class StartProgress:
    """Counts pieces of work of one kind; one thread at a time calls it.

    Args:
        done: what has been done to them, such as "captured"; ``work`` is what they are, such as "calls".
        total: how many there are; :meth:`grow` tells of more.
        clock: monotonic seconds.

    Attributes:
        count: of those that are done.
    """

    def __init__(
        self,
        metrics: Metrics,
        done: str,
        work: str,
        total: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._done, self._work, self._total = done, work, total
        self._clock, self.count = clock, 0
        self._started = self._told = clock()
        self._all = metrics.gauge(STEPS, STEPS_ABOUT, work=work)
        self._all.set(total)
        self._shown = metrics.gauge(DONE, DONE_ABOUT, work=work)

    def grow(self, total: int) -> None:
        """Take another number of all pieces of work."""
        if total != self._total:
            self._total = total
            self._all.set(total)

    def __call__(self) -> None:
        """Count one more; the log tells every ten seconds how far it is."""
        self.count += 1
        self._shown.set(self.count)
        now = self._clock()
        if now - self._told >= TOLD_EVERY_S:
            self._told = now
            left_s = (now - self._started) / self.count * max(0, self._total - self.count)
            _log.info(
                "%s %d of %d %s, about %.0f s left", self._done, self.count, self._total, self._work, left_s
            )
