"""Which utterances may begin, and which wait for pages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from operator import attrgetter

from cosyvoice_runtime.serving.token2wav.turn import WaveJob, priority
from cosyvoice_runtime.serving.token2wav.voices import VoiceCache

PAGES_AHEAD, LEAST_PARTS = 2, 16
"""Pages, and at most which part of all, that stay free for each utterance in progress before another one
begins. Those in progress are in the middle of what they say, on average, and one that finds no page computes
all of its blocks again with each chunk, which everybody waits for. Simulated with utterances of 12 s in the
mean, up to 33, at 280 s of speech a second and 1,034 pages: 256 listeners at once find none left 89 % of the
time with 0 ahead, 21 with 1, 0 with 2, and 64 never wait for 2."""
PAGES_OF_FIRST = 2
"""That a first chunk takes at most."""
LONGEST_WAIT_S = 10.0
"""Whoever has waited for longer begins all the same, one in a turn: those in progress may say nothing for
minutes, and hold their pages."""


class Openings:
    """Utterances begin while those in progress are sure of pages for what they may still say, and wait
    otherwise, the most urgent first. For one thread at a time.

    Args:
        voices: of all utterances that share the pages.
        show: told how many wait, whenever it has changed.
    """

    def __init__(self, voices: VoiceCache, show: Callable[[int], None] = lambda _: None) -> None:
        self._voices = voices
        self._show = show
        self._shown = 0
        self._ahead = min(PAGES_AHEAD, voices.num_pages // LEAST_PARTS)

    def held(self, new: Collection[WaveJob], now: float) -> set[WaveJob]:
        """Of jobs that would begin an utterance now, those that have to wait."""
        by_urgency = sorted(new, key=priority)
        held = by_urgency[self._fitting(by_urgency) :]
        oldest = min(held, key=attrgetter("arrived"), default=None)
        if oldest is not None and now >= oldest.arrived + LONGEST_WAIT_S:
            held.remove(oldest)
        if len(held) != self._shown:
            self._shown = len(held)
            self._show(len(held))
        return set(held)

    def _fitting(self, jobs: Sequence[WaveJob]) -> int:
        """How many of them may begin: the first one always, where nobody is in progress."""
        if not (jobs and self._ahead):
            return len(jobs)
        speaking = self._voices.speaking
        left = self._voices.pages_left - self._ahead * speaking
        known: set[str] = set()
        for number, job in enumerate(jobs):
            key = job.chunk.voice_key
            left -= self._ahead + PAGES_OF_FIRST
            left -= 0 if key in known else self._voices.pages_to_take(key, job.chunk.prompt)
            known.add(key)
            if left < 0 and speaking + number:
                return number
        return len(jobs)
