"""Text that comes for a request while it runs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from cosyvoice_runtime.errors import InvalidInput


class NewText(NamedTuple):
    """What has come since the last look; ``ended`` once, with the last of it."""

    ids: Sequence[int]
    ended: bool


class TextInbox:
    """Between whoever sends a request's text and the thread that feeds it to the engine.

    Args:
        room: most ids of all text together.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._ids: list[int] = []
        self._received = 0
        self._ended = False
        self._news = False
        self._lock = threading.Lock()

    @property
    def has_news(self) -> bool:
        """Whether anything came since the last look."""
        return self._news

    @property
    def is_complete(self) -> bool:
        """Whether no more may come."""
        return self._ended

    def put(self, ids: Sequence[int], ended: bool) -> None:
        """Add text, or say that it ends.

        Raises:
            InvalidInput: it has ended already, ends without any, or is too long by now.
        """
        with self._lock:
            self._check(len(ids), ended)
            self._ids += ids
            self._received += len(ids)
            self._ended = ended
            self._news = True

    def take(self) -> NewText:
        """All that has come since the last call."""
        with self._lock:
            new = NewText(self._ids, self._ended)
            self._ids, self._news = [], False
            return new

    def _check(self, count: int, ended: bool) -> None:
        if self._ended:
            raise InvalidInput("more_text", f"{count} ids", "the text of this request is complete")
        if self._received + count > self._room:
            raise InvalidInput("more_text", f"{self._received + count} ids", f"at most {self._room}")
        if ended and not self._received + count:
            raise InvalidInput("end_text", ended, "at least one text id comes before the end")
