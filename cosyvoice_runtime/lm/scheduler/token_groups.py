"""In which groups the tokens of a request leave."""

from __future__ import annotations

from collections.abc import Sequence

from cosyvoice_runtime.lm.generation import SilenceFilter
from cosyvoice_runtime.lm.scheduler.request import Request

MAX_GROUP = 8
"""Tokens that a stream's groups grow to where nobody says how many are wanted."""
GROUP_GROWTH = 4
"""Such a group grows by one token for every four sent: the first are small, for low latency."""
MOST_SILENCE = 50
"""Tokens that don't count in a group: a reader is to hear now and then that there are any."""


class TokenGroups:
    """Counts the tokens of a stream up to the next group that its reader can use.

    Groups of a wanted size end at fixed numbers of tokens: one that left with more or fewer than that, since
    its reader was slow or the text had run out, does not delay the next. Where the reader drops long silence,
    only what it keeps is counted.
    """

    def __init__(self, request: Request) -> None:
        self._first, self._wanted = request.first_tokens, request.group_tokens
        self._keep = SilenceFilter(request.silent_tokens)
        self._counted = 0
        self._due = self._first
        self._held = 0
        self._uncounted = 0
        self.sent = 0
        """Tokens that have left."""

    @property
    def whole(self) -> bool:
        """Whether there is a whole group."""
        return self._counted >= self._due or self._uncounted >= MOST_SILENCE

    def add(self, tokens: Sequence[int]) -> None:
        """The next ones."""
        counted = len(self._keep(tokens))
        self._counted += counted
        self._uncounted += len(tokens) - counted
        self._held += len(tokens)

    def leave(self) -> None:
        """All that have come leave."""
        self.sent += self._held
        self._held = self._uncounted = 0
        if self._wanted is None:
            self._due = self._counted + min(1 + self.sent // GROUP_GROWTH, MAX_GROUP)
        elif self._counted >= self._first:
            self._due = self._counted + self._wanted - (self._counted - self._first) % self._wanted
