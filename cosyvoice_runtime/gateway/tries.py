"""Requests that a gateway offers to another server when one refuses them, or is lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from cosyvoice_runtime.gateway.policy import FOR_NOW, RefusedError
from cosyvoice_runtime.gateway.wording import RETRY_AFTER

MOST_TRIES = 3
"""The most servers that a request is offered to."""

Answer = TypeVar("Answer")


def tries_of(servers: Collection[str]) -> int:
    """The servers that a request is offered to, out of these; 1 where there are none to choose from."""
    return max(1, min(MOST_TRIES, len(servers)))


async def offered(
    ask: Callable[[], Awaitable[Answer]],
    tries: int,
    may_ask_again: Callable[[], bool] = lambda: True,
    statuses: Collection[str] = (FOR_NOW,),
) -> Answer:
    """The answer of the first server that does not refuse.

    Args:
        ask: asks the next server.
        tries: the most servers that are asked.
        may_ask_again: whether the client has heard nothing yet.
        statuses: the refusals after which another server is asked.

    Raises:
        RefusedError: all refused, and the one that has room soonest says when; or one refused otherwise.
    """
    refusals: list[RefusedError] = []
    while True:
        try:
            return await ask()
        except RefusedError as refusal:
            if refusal.status not in statuses or not may_ask_again():
                raise
            refusals.append(refusal)
        if len(refusals) >= tries:
            raise min(refusals, key=_when)


def _when(refusal: RefusedError) -> float:
    told = RETRY_AFTER.search(str(refusal))
    return float(told[1]) if told else float("inf")
