"""Counts of requests, characters and streams of each key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol
from uuid import uuid4

from cosyvoice_front.errors import ApiError, rate_limited
from cosyvoice_front.limits.allowance import Allowance

MINUTE_S = 60
DAY_S = 86_400


@dataclass(frozen=True)
class Claim:
    """A request that counts for a key.

    Attributes:
        characters: of its text, as far as that is known at its beginning.
        id: no other request's, in whatever process.
    """

    owner: str
    allowance: Allowance
    characters: int
    id: str = field(default_factory=lambda: uuid4().hex)


class Counts(Protocol):
    """Counts claims. A claim that was refused, or has ended, may be ended again."""

    async def take(self, claim: Claim) -> None:
        """Count a request, its characters and its stream.

        Raises:
            ApiError: a limit is reached; the request then counts for nothing.
        """

    async def spend(self, owner: str, allowance: Allowance, characters: int) -> None:
        """Count further text of a stream.

        Raises:
            ApiError: the day's characters are used up; these then don't count.
        """

    async def end(self, claim: Claim, *, unspoken: bool) -> None:
        """End the stream.

        Args:
            unspoken: the server had no room, so that the request of the last minute and its characters don't
                count.
        """

    async def close(self) -> None:
        """Let go of what it holds."""


def no_stream_left(limit: int) -> ApiError:
    return rate_limited(f"This key has {limit} utterances in progress, its limit.")


def no_request_left(limit: int, wait_s: float) -> ApiError:
    return _until(wait_s, f"This key has its limit of {limit} requests a minute.")


def no_character_left(left: int, limit: int, wait_s: float) -> ApiError:
    return _until(wait_s, f"This key has {left} of {limit} characters left today.")


def _until(seconds: float, message: str) -> ApiError:
    return rate_limited(message, max(1, round(1000 * seconds)))
