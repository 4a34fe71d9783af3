"""Counts of all fronts that share a Redis."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from redis.asyncio import Redis

from cosyvoice_front.errors import ApiError
from cosyvoice_front.limits.allowance import Allowance
from cosyvoice_front.limits.counts import Claim, no_character_left, no_request_left, no_stream_left
from cosyvoice_front.limits.questions import Answer, Questions

SCRIPT = Path(__file__).with_name("counts.lua")
PREFIX = "cosyvoice:limits"
MOST_IDS = 1000
"""Streams that are renewed by one call; Lua takes a few thousand arguments."""
LEASE_S = 30.0
"""How long a stream counts whose front doesn't say that it goes on."""


class RedisCounts:
    """Asks Redis, and waits as long as that takes; errors of redis-py tell that it is away.

    Args:
        lease_s: how long a stream counts unless it is renewed.
    """

    def __init__(self, client: Redis, lease_s: float = LEASE_S) -> None:
        self._client = client
        self._questions = Questions(client, SCRIPT.read_text("utf-8"))
        self.lease_s = lease_s

    async def ping(self) -> None:
        """Ask whether Redis is there."""
        await self._client.ping()

    async def take(self, claim: Claim) -> ApiError | None:
        """Count a request, its characters and its stream. Where a limit is reached, return what says so."""
        limits = claim.allowance
        most = limits.streams, limits.requests_per_minute, limits.characters_per_day
        answer = await self._do(claim.owner, "take", claim.id, self.lease_s, claim.characters, *most)
        return _refusal(answer, limits)

    async def spend(self, owner: str, allowance: Allowance, characters: int) -> ApiError | None:
        """Count further text of a stream. Where the day's characters are used up, return what says so."""
        answer = await self._do(owner, "spend", characters, allowance.characters_per_day)
        return _refusal(answer, allowance)

    async def renew(self, owner: str, ids: Sequence[str]) -> None:
        """Say that streams go on, whether Redis knows them or not."""
        for first in range(0, len(ids), MOST_IDS):
            await self._do(owner, "renew", self.lease_s, *ids[first : first + MOST_IDS])

    async def leave(self, owner: str, id: str) -> None:
        """End a stream."""
        await self._do(owner, "leave", id)

    async def give_back(self, claim: Claim) -> None:
        """End a stream, and forget its request if that is of the last minute."""
        await self._do(claim.owner, "give_back", claim.id, claim.characters)

    async def close(self) -> None:
        await self._questions.close()

    async def _do(self, owner: str, action: str, *arguments: str | float) -> Answer:
        # The braces keep a key's entries on one node of a cluster.
        keys = [f"{PREFIX}:{{{owner}}}:{entry}" for entry in ("streams", "requests", "characters")]
        return await self._questions.ask(keys, action, *arguments)


def _refusal(answer: Answer, limits: Allowance) -> ApiError | None:
    """The error of the limit that an answer of the script names."""
    if not answer:
        return None
    limit, *numbers = answer
    if limit == b"streams":
        return no_stream_left(limits.streams)
    if limit == b"requests":
        return no_request_left(limits.requests_per_minute, float(numbers[0]))
    return no_character_left(max(0, int(numbers[0])), limits.characters_per_day, float(numbers[1]))
