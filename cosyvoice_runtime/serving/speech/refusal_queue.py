"""The queue of refused clients: whether one more utterance is admitted, and what others are told."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from cosyvoice_runtime.errors import OverloadedError
from cosyvoice_runtime.serving.speech.capacity import Capacity
from cosyvoice_runtime.serving.speech.tickets import UNNAMED, Tickets

SHORTEST_WAIT_S, LONGEST_WAIT_S = 0.1, 15.0
"""The bounds of the time that a refused client is told. After many clients have left, the rest waits no
longer than the second."""
SPREAD_S = 5.0
"""The spread that is added to longer waits, so that clients do not come back together."""
GOLDEN = (math.sqrt(5) - 1) / 2
"""Steps of this length, modulo one, are spread evenly after any number of them."""
FIRST_WAIT_S = 0.4
"""The longest wait of the next client in the queue, so that it comes soon after capacity is free."""
KEPT_S = 0.5
"""The time for which free capacity is reserved for the next clients in the queue. Many refused clients never
come back, so other clients get it afterwards."""
USUAL_DURATION_S = 2.0
"""The assumed duration of an utterance before the first has ended."""


class RefusalQueue:
    """Decides whether a client is admitted, without admitting it.

    Refusing at once, and not after a wait, tells a client to try elsewhere; a queue would only hide that the
    machine is full, and its first audio would come late for everybody.

    Clients take turns: who was refused and comes back when told goes before those who come later, or again;
    a place that has become free is kept a moment for them.
    A named client waits once, however many requests it has, so that one with many does not get more.

    Args:
        board: one record of :data:`~cosyvoice_runtime.serving.speech.board.BOARD`.
        now: monotonic seconds, the same for all processes.
    """

    def __init__(self, board: Any, now: Callable[[], float] = time.monotonic) -> None:
        self.capacity = Capacity(board["learned"])
        self.now = now
        self._board = board
        self._tickets = Tickets(board["tickets"])
        self._step = 0.0

    @property
    def count(self) -> int:
        """The utterances in progress."""
        return int(self._board["held"])

    def require(self, client: int) -> None:
        """Raise an error unless there is capacity for one more utterance.

        Args:
            client: number of the client, see :func:`client_number`.

        Raises:
            OverloadedError: there is none, or it is reserved for others; the text says when to come back.
        """
        now, limit, held = self.now(), self.capacity.limit, self.count
        ticket = self._tickets.find(client, now)
        kept_until_s = float(self._board["freed_s"]) + KEPT_S
        kept = self._tickets.ahead(client, ticket, now, kept_until_s) if now < kept_until_s else 0
        if held + kept >= limit:
            raise self._refusal(client, ticket, held)

    def over(self, client: int) -> None:
        """Remove the client from the queue."""
        ticket = self._tickets.find(client, self.now())
        if ticket is not None:
            self._tickets.drop(ticket)

    def _refusal(self, client: int, ticket: int | None, held: int) -> OverloadedError:
        now, limit = self.now(), self.capacity.limit
        ahead = self._tickets.ahead(client, ticket, now)
        wait_s = self._wait_s(ahead, self._tickets.others(ticket, now))
        wait_s = min(wait_s, KEPT_S) if held < limit else wait_s
        self._tickets.issue(client, ticket, now, now + wait_s)
        return OverloadedError(_reason(held, limit), wait_s)

    @property
    def _turn_s(self) -> float:
        """The seconds between two ends of utterances."""
        return (float(self._board["stay_s"]) or USUAL_DURATION_S) / self.capacity.limit

    def _wait_s(self, ahead: int, others_s: float) -> float:
        """The wait until those ahead in the queue are admitted, in tenths of a second.

        Args:
            others_s: seconds until the client's other requests come back; each has its own queue position.
        """
        if others_s:
            wait_s = others_s + self._turn_s * (ahead + 1)
        elif ahead:
            wait_s = self._turn_s * (ahead + 0.5)  # The next utterance may end at any time in this interval.
        else:
            wait_s = min(0.5 * self._turn_s, FIRST_WAIT_S)
        if wait_s > LONGEST_WAIT_S:
            self._step = (self._step + GOLDEN) % 1
            wait_s = LONGEST_WAIT_S + SPREAD_S * self._step
        return math.ceil(10 * max(wait_s, SHORTEST_WAIT_S)) / 10


def client_number(name: str | None) -> int:
    """A number for a client's name, the same in all processes."""
    if not name:
        return UNNAMED
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little") | 2


def _reason(held: int, limit: int) -> str:
    if held >= limit:
        return f"{held} utterances are in progress, the limit"
    return f"{held} utterances are in progress, and others were here before"
