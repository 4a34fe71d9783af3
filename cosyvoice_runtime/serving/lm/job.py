"""A request on its way through the scheduler, and the thread that hands its tokens to whoever reads them."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, Protocol

from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.lm import FinishReason
from cosyvoice_runtime.serving.lm.request import Request
from cosyvoice_runtime.serving.lm.text_inbox import TextInbox

logger = logging.getLogger(__name__)


class Unread(NamedTuple):
    """What the reader has not got yet."""

    tokens: Sequence[int]
    finish_reason: FinishReason | None
    error: CosyVoiceError | None


MAX_GROUP = 8
"""Tokens that a stream's group grows to; more leave together when the reader is slow."""
GROUP_GROWTH = 4
"""A group grows by one token for every four sent: the first groups are small, for low latency."""

NOTHING = Unread((), None, None)


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
        self._sent = 0
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
        """Add what a step brought; returns whether the reader has to be told to look."""
        with self._lock:
            self._pauses = False
            self._tokens += tokens
            self.finish_reason, self._error = finish_reason, error
            told = self._unread_since is not None
            if not told:
                self._unread_since = now
            return not told

    def pause(self) -> None:
        """No further token comes for a while: the reader is to get what is there, whole group or not."""
        with self._lock:
            self._pauses = True

    def take(self) -> Unread:
        """What is there for the reader: when streaming, whole groups; at the end, the rest."""
        with self._lock:
            self._unread_since = None
            if self.finish_reason is None and not self._is_group():
                return NOTHING
            tokens, self._tokens = self._tokens, []
            self._sent += len(tokens)
            return Unread(tokens, self.finish_reason, self._error)

    @property
    def awaits_first(self) -> bool:
        """Whether a stream's reader has got nothing yet."""
        return self.request.streaming and not self._sent

    def unread_s(self, now: float) -> float:
        """Seconds for which the reader has not looked although there was something new."""
        with self._lock:
            return 0.0 if self._unread_since is None else now - self._unread_since

    def _is_group(self) -> bool:
        later = min(1 + self._sent // GROUP_GROWTH, MAX_GROUP)
        wanted = (1 if self._pauses else later) if self._sent else self.request.first_tokens
        return self.request.streaming and len(self._tokens) >= wanted


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
