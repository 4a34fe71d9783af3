"""A request on its way through the scheduler to whoever reads its tokens."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from typing import NamedTuple, Protocol

from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.lm import FinishReason
from cosyvoice_runtime.serving.lm.request import Request


class Unread(NamedTuple):
    """What the reader has not got yet."""

    tokens: Sequence[int]
    finish_reason: FinishReason | None
    error: CosyVoiceError | None


MAX_GROUP = 8
"""Tokens that a stream's group grows to; more leave together when the reader is slow."""
GROUP_GROWTH = 4
"""Every four tokens sent make the next group larger by one: only the first ones are waited for."""

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
        handle: of the engine, while the request holds a slot; the scheduler's own.
        finish_reason: None until the request has ended.
        closed: the reader has been told so; the delivery's own.
    """

    def __init__(self, request: Request, reader: Reader) -> None:
        self.request = request
        self.reader = reader
        self.handle: Hashable | None = None
        self.finish_reason: FinishReason | None = None
        self.closed = False
        self._error: CosyVoiceError | None = None
        self._tokens: list[int] = []
        self._sent = 0
        self._unread_since: float | None = None
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
            self._tokens += tokens
            self.finish_reason, self._error = finish_reason, error
            told = self._unread_since is not None
            if not told:
                self._unread_since = now
            return not told

    def take(self) -> Unread:
        """What is there for the reader: when streaming, whole groups; at the end, the rest."""
        with self._lock:
            self._unread_since = None
            if self.finish_reason is None and not self._is_group():
                return NOTHING
            tokens, self._tokens = self._tokens, []
            self._sent += len(tokens)
            return Unread(tokens, self.finish_reason, self._error)

    def unread_s(self, now: float) -> float:
        """Seconds for which the reader has not looked although there was something new."""
        with self._lock:
            return 0.0 if self._unread_since is None else now - self._unread_since

    def _is_group(self) -> bool:
        later = min(1 + self._sent // GROUP_GROWTH, MAX_GROUP)
        wanted = later if self._sent else self.request.first_tokens
        return self.request.streaming and len(self._tokens) >= wanted
