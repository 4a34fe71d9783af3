"""Counts of several fronts, and of this one alone while Redis is away."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from cosyvoice_front.limits.allowance import Allowance
from cosyvoice_front.limits.counts import Claim
from cosyvoice_front.limits.memory import MemoryCounts
from cosyvoice_front.limits.redis_counts import RedisCounts

logger = logging.getLogger(__name__)

T = TypeVar("T")

MOST_WAIT_S = 0.05
"""How long a request waits for Redis."""
PIECES = 5
LOOK_S = 1.0
"""How long a look whether Redis is there may take."""
PAUSE_S = 1.0
"""Between two looks while it is away."""
WARNING_S = 60.0
"""Between two warnings that Redis is away."""


class AwayError(Exception):
    """Redis doesn't answer, or didn't a moment ago."""


class SharedCounts:
    """Counts in Redis. To be made in the event loop that uses it.

    What this front has let in is counted here, too. While Redis is away that decides, so that a key gets at
    most its limits of each front. A task renews the leases of streams, looks whether Redis is back, and tells
    it then what it has missed: the streams that go on, and those that have ended.

    Args:
        alone: is called for each request that this front has counted alone.
    """

    def __init__(self, shared: RedisCounts, alone: Callable[[], None]) -> None:
        self._shared = shared
        self._own = MemoryCounts()
        self._alone = alone
        self._streams: dict[str, str] = {}
        self._untold: deque[tuple[float, str, str]] = deque()
        self._away = asyncio.Event()
        self._warn_from = 0.0
        self._ending: set[asyncio.Task[None]] = set()
        self._keeping = asyncio.create_task(self._keep())

    async def take(self, claim: Claim) -> None:
        self._streams[claim.id] = claim.owner
        try:
            refusal = await self._ask(self._shared.take(claim))
        except AwayError:
            self._alone()
            await self._own.take(claim)
        else:
            if refusal is not None:
                raise refusal
            self._own.note(claim)

    async def spend(self, owner: str, allowance: Allowance, characters: int) -> None:
        try:
            refusal = await self._ask(self._shared.spend(owner, allowance, characters))
        except AwayError:
            await self._own.spend(owner, allowance, characters)
        else:
            if refusal is not None:
                raise refusal
            self._own.note_spent(owner, characters)

    async def end(self, claim: Claim, *, unspoken: bool) -> None:
        self._streams.pop(claim.id, None)
        await self._own.end(claim, unspoken=unspoken)
        # A request that is cancelled meanwhile must not keep the lease.
        task = asyncio.create_task(self._end(claim, unspoken))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        await asyncio.shield(task)

    async def close(self) -> None:
        self._keeping.cancel()
        await asyncio.gather(self._keeping, *self._ending, return_exceptions=True)
        await self._shared.close()

    async def _end(self, claim: Claim, unspoken: bool) -> None:
        shared = self._shared
        try:
            await self._ask(shared.give_back(claim) if unspoken else shared.leave(claim.owner, claim.id))
        except AwayError:
            now = time.monotonic()
            while self._untold and self._untold[0][0] < now - shared.lease_s:
                self._untold.popleft()  # its lease has run out
            self._untold.append((now, claim.owner, claim.id))

    async def _ask(self, question: Coroutine[Any, Any, T]) -> T:
        """Ask Redis; an AwayError where it doesn't answer in time, or is known to be away."""
        if self._away.is_set():
            question.close()
            raise AwayError
        try:
            return await _in_time(question)
        except Exception as error:  # whatever it is, clients hear nothing of it
            self._lose(error)
            raise AwayError from error

    async def _keep(self) -> None:
        while True:
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._tell()
            except Exception as error:  # whatever it is, leases are renewed again
                self._lose(error)
                await asyncio.sleep(PAUSE_S)
            else:
                self._find()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._shared.lease_s / 3):
                        await self._away.wait()

    async def _tell(self) -> None:
        """Tell Redis which streams go on, and which have ended while it was away."""
        await self._shared.ping()
        for owner in set(self._streams.values()):
            # Questions are asked in their order: what ends from here on, ends after its lease was renewed.
            if names := [name for name, its_owner in self._streams.items() if its_owner == owner]:
                await self._shared.renew(owner, names)
        while self._untold:
            _, owner, name = self._untold.popleft()
            await self._shared.leave(owner, name)

    def _lose(self, error: Exception) -> None:
        self._away.set()
        if (now := time.monotonic()) >= self._warn_from:
            self._warn_from = now + WARNING_S
            reason = str(error) or type(error).__name__
            logger.warning("front.limits_url: Redis is away, this front counts alone: %s", reason)

    def _find(self) -> None:
        if self._away.is_set():
            self._away.clear()
            logger.info("front.limits_url: Redis is back, and counts for all fronts")


async def _in_time(question: Coroutine[Any, Any, T]) -> T:
    """Wait for an answer; a TimeoutError when there is none.

    An event loop that was busy for longer than that finds the answer and the end of the time at once. It
    waits piece by piece, so that an answer that has come counts.
    """
    task = asyncio.create_task(question)
    try:
        for _ in range(PIECES):
            await asyncio.wait({task}, timeout=MOST_WAIT_S / PIECES)
            if task.done():
                return task.result()
        raise TimeoutError(f"no answer in {1000 * MOST_WAIT_S:g} ms")
    finally:
        task.cancel()
