"""How much each key may ask for, and all together, in this process."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from cosyvoice_front.errors import OVERLOADED, ApiError, overloaded, rate_limited
from cosyvoice_runtime.settings import FrontSettings

MINUTE_S = 60
DAY_S = 86_400


@dataclass
class Used:
    """Requests and characters that one key has asked for.

    Attributes:
        asked: times of the requests of the last minute.
        day: since the epoch, that ``characters`` were spoken on.
    """

    streams: int = 0
    asked: deque[float] = field(default_factory=deque)
    day: int = 0
    characters: int = 0

    def give_back(self, asked: float, day: int, characters: int) -> None:
        """Forget a request of that time and day."""
        with suppress(ValueError):  # a minute ago or more
            self.asked.remove(asked)
        if day == self.day:
            self.characters -= characters


class Limits:
    """Places for utterances. A limit of 0 is none.

    Args:
        now: seconds since the epoch.
    """

    def __init__(self, settings: FrontSettings, now: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._now = now
        self._used: dict[str, Used] = {}
        self.streams = 0
        """Utterances in progress."""

    @contextmanager
    def place(self, owner: str, characters: int) -> Iterator[None]:
        """Hold a place for a text of this length. What the server has no room for doesn't count.

        Raises:
            ApiError: a limit is reached; the request then doesn't count.
        """
        used = self._used.setdefault(owner, Used())
        self._check(used, characters)
        asked, day = self._now(), used.day
        used.asked.append(asked)
        used.characters += characters
        used.streams += 1
        self.streams += 1
        try:
            yield
        except ApiError as error:
            if error.status == OVERLOADED:
                used.give_back(asked, day, characters)
            raise
        finally:
            used.streams -= 1
            self.streams -= 1

    def spend(self, owner: str, characters: int) -> None:
        """Count further text of an utterance that holds a place.

        Raises:
            ApiError: the day's characters are used up; these then don't count.
        """
        used = self._used.setdefault(owner, Used())
        self._check_day(used, characters)
        used.characters += characters

    def _check(self, used: Used, characters: int) -> None:
        settings = self._settings
        if self.streams >= settings.max_streams:
            message = f"{self.streams} utterances are in progress, the limit; try again later."
            raise overloaded(message)
        if settings.streams_per_key and used.streams >= settings.streams_per_key:
            message = f"This key has {used.streams} utterances in progress, its limit."
            raise rate_limited(message)
        self._check_minute(used)
        self._check_day(used, characters)

    def _check_minute(self, used: Used) -> None:
        limit, now = self._settings.requests_per_minute, self._now()
        while used.asked and used.asked[0] <= now - MINUTE_S:
            used.asked.popleft()
        if limit and len(used.asked) >= limit:
            raise _until(
                used.asked[0] + MINUTE_S - now, f"This key has its limit of {limit} requests a minute."
            )

    def _check_day(self, used: Used, characters: int) -> None:
        limit, now = self._settings.characters_per_day, self._now()
        day = int(now // DAY_S)
        if used.day != day:
            used.day, used.characters = day, 0
        if limit and used.characters + characters > limit:
            message = f"This key has {limit - used.characters} of {limit} characters left today."
            raise _until((day + 1) * DAY_S - now, message)


def _until(seconds: float, message: str) -> ApiError:
    return rate_limited(message, max(1, round(1000 * seconds)))
