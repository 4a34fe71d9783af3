"""What is made ready beside work, because work can do without it at first."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from cosyvoice_runtime.gpu.partitions.shared_gpu import Later

logger = logging.getLogger(__name__)


class Preparation:
    """A thread that makes ready what is missing, and rests as long after each part as that has taken.

    Args:
        later: what it does, one after the other, and then forgets.
        on_ready: called when nothing is missing any more; what fails stays missing.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        later: Sequence[Later],
        on_ready: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._later, self._on_ready, self._clock = [*later], on_ready, clock
        self._begun_s = 0.0
        self._closed = threading.Event()
        # Not one that outlives the process's end, if nobody closes it.
        self._thread = threading.Thread(target=self._run, name="token2wav-later", daemon=True)

    def start(self) -> None:
        """Begin, once those who work have begun; if nothing is missing, that is all."""
        if self._later:
            self._thread.start()
        else:
            self._on_ready()

    def close(self) -> None:
        """End after the part under way; harmless when repeated."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        self._begun_s = self._clock()
        try:
            while self._later:
                self._later.pop(0)(self._rest)
        except _ClosedError:
            return
        except Exception:
            logger.exception("what was to be made ready beside work is missing, and stays so")
            return
        self._on_ready()

    def _rest(self) -> None:
        """Others wait for Python's lock meanwhile."""
        if self._closed.wait(self._clock() - self._begun_s):
            raise _ClosedError
        self._begun_s = self._clock()


class _ClosedError(Exception):
    """Nobody wants what is missing any more."""
