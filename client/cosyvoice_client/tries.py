"""Requests that are offered to another server when one refuses, or is lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from cosyvoice_client.errors import UnavailableError

TRIES = 3
"""The most servers that a request is offered to."""
BUDGET = 50.0
"""The further tries that a burst of refusals may have."""
SHARE = 0.2
"""The further tries that each answered request adds, so that a full fleet is not asked more and more."""

Answer = TypeVar("Answer")


class Tries:
    """The tries of one client, whose servers gRPC asks one after the other.

    Args:
        several: whether there is another server to ask.
    """

    def __init__(self, several: bool) -> None:
        self._most = TRIES if several else 1
        self._left = BUDGET

    async def offer(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer of the first server that does not refuse.

        Args:
            ask: asks the next server; what was asked before it failed has left nothing behind.

        Raises:
            UnavailableError: all that were asked refused; the one that has room soonest says when. Its
                ``tries`` are how many were asked.
            ClientError: of the server that answered.
        """
        refusals: list[UnavailableError] = []
        while True:
            try:
                answer = await ask()
            except UnavailableError as error:
                refusals.append(error)
                if len(refusals) >= self._most or self._left < 1:
                    break
                self._left -= 1
            else:
                self._left = min(BUDGET, self._left + SHARE)
                return answer
        soonest = min(refusals, key=_when)
        soonest.tries = len(refusals)
        raise soonest


def _when(error: UnavailableError) -> float:
    return float("inf") if error.retry_after_s is None else error.retry_after_s
