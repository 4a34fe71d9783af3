"""The limits of one key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cosyvoice_runtime.settings import FrontSettings

SETTINGS = {
    "requests_per_minute": "requests_per_minute",
    "streams": "streams_per_key",
    "characters_per_day": "characters_per_day",
}
"""Words of the file of keys, and the settings in whose place they count."""


@dataclass(frozen=True)
class Allowance:
    """Limits of one key; 0 is none.

    Attributes:
        streams: utterances at once.
        characters_per_day: of a day of UTC.
    """

    requests_per_minute: int = 0
    streams: int = 0
    characters_per_day: int = 0

    @classmethod
    def of(cls, settings: FrontSettings, own: Mapping[str, int]) -> Allowance:
        """The limits of the settings, but those that a key has of its own."""
        return cls(**{word: own.get(word, getattr(settings, name)) for word, name in SETTINGS.items()})
