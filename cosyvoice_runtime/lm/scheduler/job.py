"""A request on its way through the scheduler, and the thread that hands its tokens to whoever reads them."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.lm import FinishReason
from cosyvoice_runtime.lm.scheduler.request import Request
from cosyvoice_runtime.lm.scheduler.text_inbox import TextInbox
from cosyvoice_runtime.lm.scheduler.token_groups import TokenGroups

logger = logging.getLogger(__name__)


class Unread(NamedTuple):
    """What the reader has not got yet."""

    tokens: Sequence[int]
    finish_reason: FinishReason | None
    error: CosyVoiceError | None


NOTHING = Unread((), None, None)

LOOK_S = 0.05
"""Time between two looks while there are requests: at the load, and whether readers are still there."""


class Reader(Protocol):
    """Where the tokens of one request go; called by one thread at a time."""

    @property
    def cancelled(self) -> bool:
        """Whether nobody wants further tokens."""

    def send(self, tokens: Sequence[int], finish_reason: FinishReason | None) -> None:
        """Pass on new tokens; any exception means that nobody wants further ones."""

    def finish(self, error: Exception | None) -> None:
        """Called once, after the last tokens or instead of them."""


class Job:
    """Tokens go in from the scheduler's thread and out to the reader's.

    Attributes:
        text: of a request whose text comes while it runs.
        handle: of the engine, while the request holds a slot; the scheduler's own.
        finish_reason: None until the request has ended.
        closed: the reader has been told so; the delivery's own.
    """

    def __init__(self, request: Request, reader: Reader, text: TextInbox | None = None) -> None:
        self.request = request
        self.reader = reader
        self.text = text
        self.handle: Hashable | None = None
        self.finish_reason: FinishReason | None = None
        self.closed = False
        self._error: CosyVoiceError | None = None
        self._tokens: list[int] = []
        self._groups = TokenGroups(request)
        self._unread_since: float | None = None
        self._pauses = False
        self._lock = threading.Lock()

    def put(
        self,
        tokens: Sequence[int],
        now: float,
        finish_reason: FinishReason | None = None,
        error: CosyVoiceError | None = None,
    ) -> bool:
        """Add what a step brought.

        Returns:
            Whether the reader has to be told to look: there is something for it that it does not know of.
        """
        with self._lock:
            self._pauses = False
            self._tokens += tokens
            self._groups.add(tokens)
            self.finish_reason, self._error = finish_reason, error
            if self._unread_since is not None or not self._is_due():
                return False
            self._unread_since = now
            return True

    def pause(self) -> None:
        """No further token comes for a while: the reader is to get what is there, whole group or not."""
        with self._lock:
            self._pauses = True

    def take(self) -> Unread:
        """What is there for the reader: when streaming, whole groups; at the end, the rest."""
        with self._lock:
            self._unread_since = None
            if not self._is_due():
                return NOTHING
            tokens, self._tokens = self._tokens, []
            self._groups.leave()
            return Unread(tokens, self.finish_reason, self._error)

    @property
    def awaits_first(self) -> bool:
        """Whether a stream's reader has got nothing yet."""
        return self.request.streaming and not self._groups.sent

    @property
    def lacks_first(self) -> bool:
        """Whether the tokens are not there yet that its reader is to get first."""
        return self.awaits_first and not self._groups.whole

    def unread_s(self, now: float) -> float:
        """Seconds for which the reader has not looked although there was something for it."""
        with self._lock:
            return 0.0 if self._unread_since is None else now - self._unread_since

    def _is_due(self) -> bool:
        return self.finish_reason is not None or (self.request.streaming and self._is_group())

    def _is_group(self) -> bool:
        pauses = self._pauses and self._groups.sent > 0
        return self._groups.whole or (pauses and len(self._tokens) > 0)


class Delivery:
    """Passes on tokens in groups: all that have come while the thread served other readers.

    It looks round every ``LOOK_S`` while there are requests, and once more after the last: readers that have
    left are noticed whether tokens come for them or not.

    Args:
        cancel: told of a job that nobody reads any more.
        look_round: called at each such look, and at the end.
    """

    def __init__(self, cancel: Callable[[Job], None], look_round: Callable[[], None]) -> None:
        self._cancel = cancel
        self._look_round = look_round
        self._open: set[Job] = set()
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
        next_look_s, has_news = 0.0, False
        while True:
            wait_s = max(next_look_s - time.monotonic(), 0.0) if self._open or has_news else None
            with suppress(queue.Empty):
                job = self._ready.get(timeout=wait_s)
                if job is None:
                    break
                _guarded(self._look, job)
                has_news = True
            if time.monotonic() >= next_look_s:
                self._look_at_all()
                next_look_s, has_news = time.monotonic() + LOOK_S, False
        _guarded(self._look_round)

    def _look_at_all(self) -> None:
        for job in [job for job in self._open if job.handle is not None]:  # others are asked at their turn
            _guarded(self._look, job)
        _guarded(self._look_round)

    def _look(self, job: Job) -> None:
        if job.closed:
            return
        self._open.add(job)
        unread = job.take()
        error = unread.error or self._send(job, unread)
        if error is not None or unread.finish_reason is not None:
            job.closed = True
            self._open.remove(job)
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
