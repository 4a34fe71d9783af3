"""The thread that hands tokens to readers, so that decoding never waits for one of them."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from cosyvoice_runtime.serving.lm.job import Job, Unread

logger = logging.getLogger(__name__)


class Delivery:
    """Passes on tokens in groups: all that have come while the thread served other readers.

    Args:
        cancel: told of a job that nobody reads any more.
        caught_up: called when everything there was has been handed over.
    """

    def __init__(self, cancel: Callable[[Job], None], caught_up: Callable[[], None]) -> None:
        self._cancel = cancel
        self._caught_up = caught_up
        self._ready: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="speech-lm-delivery")
        self._thread.start()

    def tell(self, job: Job) -> None:
        """There is something new about a job."""
        self._ready.put(job)

    def close(self, timeout_s: float | None = None) -> None:
        """Return when everything told so far has been handed over, or after the timeout."""
        self._ready.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (job := self._ready.get()) is not None:
            _guarded(self._look, job)
            if self._ready.empty():
                _guarded(self._caught_up)

    def _look(self, job: Job) -> None:
        if job.closed:
            return
        unread = job.take()
        error = unread.error or self._send(job, unread)
        if error is not None or unread.finish_reason is not None:
            job.closed = True
            job.reader.finish(error)

    def _send(self, job: Job, unread: Unread) -> Exception | None:
        """Pass tokens on; returns why that could not be done."""
        try:
            if unread.tokens or unread.finish_reason is not None:
                job.reader.send(unread.tokens, unread.finish_reason)
            elif job.reader.cancelled:
                self._cancel(job)
        except Exception as error:
            self._cancel(job)
            return error
        return None


def _guarded(function: Callable[..., None], *arguments: object) -> None:
    """Call a function of others: its error is theirs, and the other readers still get their tokens."""
    try:
        function(*arguments)
    except Exception:
        logger.exception("%s failed", getattr(function, "__qualname__", function))
