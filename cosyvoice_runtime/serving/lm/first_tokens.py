"""The first tokens of a stream, for another model of the process that waits for them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol

from cosyvoice_runtime.errors import NotFoundError
from cosyvoice_runtime.lm import FinishReason
from cosyvoice_runtime.lm.silence import SilenceFilter

logger = logging.getLogger(__name__)


class Spoken(NamedTuple):
    """
    Attributes:
        tokens: speech codes that are heard.
        last: no more will come.
    """

    tokens: Sequence[int]
    last: bool


TakeTokens = Callable[[Spoken | None], None]
"""Takes the first tokens, once; None if the request ends without them."""


class FirstTokensSource(Protocol):
    """A speech LM in the same process."""

    def first_tokens(self, request_id: str, take: TakeTokens) -> None:
        """Have the first tokens of a stream, before whoever reads it has.

        Args:
            take: called from whichever thread.

        Raises:
            NotFoundError: there is no such stream, or its first tokens are gone.
        """


class FirstTokens:
    """Those of one stream; for any thread.

    Args:
        request_id: of the stream.
        count: tokens that are waited for, unless the stream ends before.
        silent: speech codes of which only the first few of a run are heard.
    """

    def __init__(self, request_id: str, count: int, silent: Collection[int] = ()) -> None:
        self._request_id = request_id
        self._count = count
        self._keep = SilenceFilter(silent)
        self._tokens: list[int] = []
        self._take: TakeTokens | None = None
        self._gone = False
        self._lock = threading.Lock()

    def give_to(self, take: TakeTokens) -> None:
        """
        Raises:
            NotFoundError: they are gone, or somebody else's.
        """
        with self._lock:
            if self._gone or self._take is not None:
                limit = "its first tokens have left, or are somebody else's"
                raise NotFoundError("tokens_of", self._request_id, limit)
            self._take = take

    def add(self, tokens: Sequence[int], reason: FinishReason | None) -> None:
        """The stream's next tokens, and why they end if they do."""
        with self._lock:
            if self._gone:
                return
            self._tokens += self._keep(tokens)
            enough = len(self._tokens) >= self._count
            if not enough and reason is None:
                return
            self._gone = True
        spoken = Spoken(self._tokens[: self._count], last=not enough)
        self._hand_over(spoken if reason is None or reason.is_heard else None)

    def end(self) -> None:
        """No tokens come any more."""
        with self._lock:
            if self._gone:
                return
            self._gone = True
        self._hand_over(None)

    def _hand_over(self, spoken: Spoken | None) -> None:
        if self._take is None:
            return
        try:
            self._take(spoken)
        except Exception:  # another model's: the stream goes on
            logger.exception("the first tokens of %s could not be handed over", self._request_id)
