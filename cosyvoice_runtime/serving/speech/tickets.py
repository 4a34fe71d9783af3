"""Tickets of refused clients: since when they wait, and when they were told to come back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

UNNAMED = 1
"""The number of clients without a name. They are not distinguished: each refusal makes a ticket, and any such
client may use one that is due. A named client has one ticket for all its requests."""
VALID_S = 1.0
"""The time for which a ticket stays valid after it is due."""
MOST_TICKETS = 1024
TICKETS = np.dtype([("client", "u8"), ("since_s", "f8"), ("due_s", "f8"), ("last_s", "f8")])
"""The fields of a ticket: the client, the start of its wait, and when its first and last request are
expected."""
TICK_S = 1e-6


class Tickets:
    """The tickets on the board.

    Args:
        table: ``MOST_TICKETS`` records of :data:`TICKETS`, shared by all processes; zero where unused.
    """

    def __init__(self, table: Any) -> None:
        self._client, self._since_s, self._due_s, self._last_s = (table[name] for name in TICKETS.names or ())

    def find(self, client: int, now: float) -> int | None:
        """The ticket for a request of this client."""
        mine = (self._client == client) & self._valid(now)
        if client == UNNAMED:
            mine &= self._due_s <= now
        found = np.flatnonzero(mine)
        return int(found[np.argmin(self._since_s[found])]) if len(found) else None

    def ahead(self, client: int, ticket: int | None, now: float, due_s: float = math.inf) -> int:
        """The number of older tickets that are expected until ``due_s``.

        For a named client all those without a name are one.
        """
        since_s = math.inf if ticket is None else self._since_s[ticket]
        before = self._valid(now) & (self._since_s < since_s) & (self._due_s <= due_s)
        unnamed = before & (self._client == UNNAMED)
        if client == UNNAMED:
            return int(np.count_nonzero(before))
        return int(np.count_nonzero(before & ~unnamed & (self._client != client)) + unnamed.any())

    def others(self, ticket: int | None, now: float) -> float:
        """The seconds until the last of the client's other requests is expected; 0 without any."""
        return max(0.0, float(self._last_s[ticket]) - now) if ticket is not None else 0.0

    def issue(self, client: int, ticket: int | None, now: float, due_s: float) -> None:
        """Tell a client when to come back; a client with a ticket keeps its queue position.

        When there are too many, the one due first makes room.
        """
        if ticket is None:
            ticket = int(np.argmin(self._last_s))
            self._client[ticket] = client
            self._since_s[ticket] = max(now, self._since_s.max() + TICK_S)
            self._due_s[ticket] = self._last_s[ticket] = due_s
        elif self._due_s[ticket] <= now:
            self._due_s[ticket] = due_s
        self._last_s[ticket] = max(self._last_s[ticket], due_s)

    def drop(self, ticket: int) -> None:
        """Remove the ticket of an admitted client."""
        self._last_s[ticket] = 0

    def _valid(self, now: float) -> Any:
        return (self._last_s > 0) & (self._last_s + VALID_S > now)
