"""Places that requests hold, one step after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import pytest

from cosyvoice_front.errors import ApiError
from cosyvoice_front.keys import Keys
from cosyvoice_front.limits.counts import Counts
from cosyvoice_front.limits.limits import Limits
from cosyvoice_front.limits.memory import MemoryCounts
from cosyvoice_runtime.settings import FrontSettings

Place = AbstractAsyncContextManager[None]
T = TypeVar("T")


class Clock:
    """Seconds since the epoch, early on a day."""

    def __init__(self) -> None:
        self.now = 20_000 * 86_400.0 + 100

    def __call__(self) -> float:
        return self.now


class Places:
    """The limits of one front, in an event loop of their own.

    Args:
        open_counts: called in that loop; a count in memory by a standing clock without it.
    """

    def __init__(
        self, open_counts: Callable[[], Counts] | None = None, api_keys_file: str = "", **limits: int
    ) -> None:
        settings = FrontSettings(api_keys_file=api_keys_file, **limits)  # type: ignore[arg-type]
        self.clock = Clock()
        self._runner = asyncio.Runner()
        self._held: list[Place] = []

        async def open_limits() -> Limits:
            self.counts = open_counts() if open_counts else MemoryCounts(self.clock)
            return Limits(settings.max_streams, Keys(settings), self.counts)

        self.limits = self.run(open_limits())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine."""
        return self._runner.run(work)

    def hold(self, owner: str = "anna", characters: int = 10) -> Place:
        """Take a place; an ApiError where a limit is reached."""
        place = self.limits.place(owner, characters)
        self.run(place.__aenter__())  # type: ignore[arg-type]
        self._held.append(place)  # one that nobody knows any more would end by itself
        return place

    def leave(self, place: Place, error: Exception | None = None) -> None:
        """End what holds the place, by an error or well."""
        leaving = place.__aexit__(type(error) if error else None, error, None)
        try:
            self.run(leaving)  # type: ignore[arg-type]
        except ApiError as raised:
            assert raised is error  # noqa: PT017

    def refusal(self, owner: str = "anna", characters: int = 10) -> ApiError:
        """The error of a request that a limit refuses."""
        with pytest.raises(ApiError) as caught:
            self.hold(owner, characters)
        return caught.value

    def close(self) -> None:
        self.run(self.counts.close())
        self._runner.close()
