"""Places for utterances, as far as limits leave them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from cosyvoice_front.errors import OVERLOADED, ApiError, overloaded
from cosyvoice_front.keys import Keys
from cosyvoice_front.limits.counts import Claim, Counts
from cosyvoice_front.limits.memory import MemoryCounts
from cosyvoice_runtime.settings import FrontSettings


class Limits:
    """Lets a request in, or refuses it.

    Args:
        max_streams: utterances at once of all keys together, in this process.
        keys: say how much each of them may ask for.
        counts: what each of them has asked for.
    """

    def __init__(self, max_streams: int, keys: Keys, counts: Counts) -> None:
        self._max_streams = max_streams
        self._keys = keys
        self._counts = counts
        self.streams = 0
        """Utterances in progress."""

    @classmethod
    def open(cls, settings: FrontSettings, keys: Keys, alone: Callable[[], None]) -> Limits:
        """Open the store that the settings name. To be called in the event loop that uses it.

        Args:
            alone: is called for each request of which a store of several fronts was not asked.
        """
        if not settings.limits_url:
            return cls(settings.max_streams, keys, MemoryCounts())
        # Imported here because it alone needs redis, which a front that counts by itself does without.
        from cosyvoice_front.limits.address import open_redis
        from cosyvoice_front.limits.redis_counts import RedisCounts
        from cosyvoice_front.limits.shared_counts import SharedCounts

        shared = RedisCounts(open_redis(settings.limits_url))
        return cls(settings.max_streams, keys, SharedCounts(shared, alone))

    @asynccontextmanager
    async def place(self, owner: str, characters: int) -> AsyncIterator[None]:
        """Hold a place for a text of this length. What the server has no room for doesn't count.

        Raises:
            ApiError: a limit is reached; the request then doesn't count.
        """
        if self.streams >= self._max_streams:
            raise overloaded(f"{self.streams} utterances are in progress, the limit; try again later.")
        claim = Claim(owner, self._keys.allowance(owner), characters)
        unspoken = True
        self.streams += 1
        try:
            await self._counts.take(claim)
            unspoken = False
            yield
        except ApiError as error:
            unspoken = unspoken or error.status == OVERLOADED
            raise
        finally:
            self.streams -= 1
            await self._counts.end(claim, unspoken=unspoken)

    async def spend(self, owner: str, characters: int) -> None:
        """Count further text of an utterance that holds a place.

        Raises:
            ApiError: the day's characters are used up; these then don't count.
        """
        await self._counts.spend(owner, self._keys.allowance(owner), characters)

    async def close(self) -> None:
        await self._counts.close()
