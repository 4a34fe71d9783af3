"""Pages of the flow, as the cache of voices tells page admission of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from cosyvoice_runtime.engine.batches.pages import FEWEST_PAGES, PAGES_AHEAD, PAGES_OF_FIRST

PAGES = 2 * FEWEST_PAGES
EACH = PAGES_AHEAD + PAGES_OF_FIRST
"""Pages that one more utterance wants to find."""


@dataclass(frozen=True)
class Usual:
    """Pages of an utterance, as `UsualPages` tells of them."""

    at_end: int = 0
    in_progress: float = 0.0


@dataclass
class Room:
    """Pages as `VoiceCache` tells of them.

    Attributes:
        voices: pages that each voice would take.
        unknown: key of a voice that nobody has brought.
        spoken_pages: that those in progress hold.
    """

    speaking: int = 1
    pages_left: int = PAGES
    num_pages: int = PAGES
    voices: dict[str, int] = field(default_factory=dict)
    unknown: str = ""
    usual_pages: Usual = field(default_factory=Usual)
    spoken_pages: int = 0

    def can_speak(self, key: str, tensors: object) -> bool:
        return key != self.unknown

    def pages_to_take(self, key: str, tensors: object) -> int:
        return self.voices.get(key, 0)
