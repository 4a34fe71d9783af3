"""Counts of one process."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from cosyvoice_front.limits.allowance import Allowance
from cosyvoice_front.limits.counts import (
    DAY_S,
    MINUTE_S,
    Claim,
    no_character_left,
    no_request_left,
    no_stream_left,
)


@dataclass
class Used:
    """Requests, characters and streams of one key.

    Attributes:
        streams: ids of those in progress.
        asked: times of the requests of the last minute by their ids, the oldest first.
        day: since the epoch, that ``characters`` were spoken on.
    """

    streams: set[str] = field(default_factory=set)
    asked: dict[str, float] = field(default_factory=dict)
    day: int = 0
    characters: int = 0

    def forget(self, now: float) -> None:
        """Forget the requests of more than a minute ago, and the characters of another day."""
        # Not all are looked at: there may be thousands, and each request comes by here three times.
        while self.asked and self.asked[name := next(iter(self.asked))] <= now - MINUTE_S:
            del self.asked[name]
        if self.day != (day := int(now // DAY_S)):
            self.day, self.characters = day, 0


class MemoryCounts:
    """Counts in this process alone.

    Args:
        now: seconds since the epoch.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._used: defaultdict[str, Used] = defaultdict(Used)

    async def take(self, claim: Claim) -> None:
        used, now, allowance = self._of(claim.owner), self._now(), claim.allowance
        if allowance.streams and len(used.streams) >= allowance.streams:
            raise no_stream_left(allowance.streams)
        if (limit := allowance.requests_per_minute) and len(used.asked) >= limit:
            # As many as the limit must be a minute old; there are more where another store let them in.
            leaving = list(used.asked.values())[-limit]
            raise no_request_left(limit, leaving + MINUTE_S - now)
        self._check_day(used, allowance, claim.characters)
        self.note(claim)

    def note(self, claim: Claim) -> None:
        """Count a request that another store has let in."""
        used = self._of(claim.owner)
        used.asked[claim.id] = self._now()
        used.characters += claim.characters
        used.streams.add(claim.id)

    async def spend(self, owner: str, allowance: Allowance, characters: int) -> None:
        self._check_day(self._of(owner), allowance, characters)
        self.note_spent(owner, characters)

    def note_spent(self, owner: str, characters: int) -> None:
        """Count text that another store has let in."""
        self._of(owner).characters += characters

    async def end(self, claim: Claim, *, unspoken: bool) -> None:
        used = self._of(claim.owner)
        used.streams.discard(claim.id)
        if unspoken and (asked := used.asked.pop(claim.id, None)) is not None:
            used.characters -= claim.characters if asked // DAY_S == used.day else 0

    async def close(self) -> None:
        self._used.clear()

    def _of(self, owner: str) -> Used:
        used = self._used[owner]
        used.forget(self._now())
        return used

    def _check_day(self, used: Used, allowance: Allowance, characters: int) -> None:
        limit = allowance.characters_per_day
        if limit and used.characters + characters > limit:
            wait_s = (used.day + 1) * DAY_S - self._now()
            raise no_character_left(max(0, limit - used.characters), limit, wait_s)
