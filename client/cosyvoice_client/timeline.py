"""When audio arrived, and what a listener who plays it at once would hear."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

ROUNDING_S = 1e-6
"""Shorter silences are rounding of the clock."""


class Arrival(NamedTuple):
    """A chunk that holds ``seconds`` of audio and came ``at_s`` after the request."""

    at_s: float
    seconds: float


@dataclass
class Timeline:
    """The chunks of one utterance that hold samples, in the order they arrived."""

    arrivals: list[Arrival] = field(default_factory=list)

    def add(self, at_s: float, seconds: float) -> None:
        """Append a chunk; one without samples is left out."""
        if seconds > 0:
            self.arrivals.append(Arrival(at_s, seconds))

    @property
    def ttfb_s(self) -> float | None:
        """Seconds to the first audio; None without any."""
        return self.arrivals[0].at_s if self.arrivals else None

    @property
    def gaps_s(self) -> list[float]:
        """Seconds between one chunk and the next."""
        return [after.at_s - before.at_s for before, after in pairwise(self.arrivals)]

    @property
    def audio_s(self) -> float:
        return sum(arrival.seconds for arrival in self.arrivals)

    @property
    def underruns_s(self) -> list[float]:
        """Seconds of each silence that a listener who plays from the first chunk on hears."""
        return silences(self.arrivals)

    @property
    def heard_s(self) -> float | None:
        """When a listener who plays from the first chunk on has heard all of it; None without any."""
        return self.arrivals[0].at_s + self.audio_s + self.cushion_s if self.arrivals else None

    @property
    def cushion_s(self) -> float:
        """Seconds by which playing must start later to have no silence."""
        return sum(self.underruns_s)


def silences(arrivals: Iterable[Arrival]) -> list[float]:
    """Lengths of the silences for a listener who plays from the first chunk on.

    A chunk that comes after all audio before it has been played ends a silence; what follows is played
    that much later.
    """
    found = []
    played_until: float | None = None
    for at_s, seconds in arrivals:
        if played_until is None:
            played_until = at_s
        elif at_s > played_until + ROUNDING_S:
            found.append(at_s - played_until)
            played_until = at_s
        played_until += seconds
    return found
