"""Which utterances may begin, and which wait for pages."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Sequence

from cosyvoice_runtime.serving.token2wav.turn import WaveJob, priority
from cosyvoice_runtime.serving.token2wav.voices import VoiceCache

logger = logging.getLogger(__name__)

PAGES_AHEAD, LEAST_PARTS = 2, 16
"""Pages, and at most which part of all, that stay free for each utterance in progress before another one
begins. Those in progress are in the middle of what they say, on average, and one that finds no page computes
all of its blocks again with each chunk, which everybody waits for. Simulated with utterances of 12 s in the
mean, up to 33, at 280 s of speech a second and 1,034 pages: 256 listeners at once find none left 89 % of the
time with 0 ahead, 21 with 1, 0 with 2, and 100 never wait for 2."""
PAGES_OF_FIRST = 2
"""That a first chunk takes at most."""
LONGEST_WAIT_S, BETWEEN_S = 10.0, 1.0
"""Whoever has waited for longer begins all the same, one in so many seconds: those in progress may say
nothing for minutes, and hold their pages. More at once, and all would run out of them."""

SHORT, SOON_S, SOON_LACKING_S = 0.3, 2.0, 1.0
"""With a smaller share of pages left, utterances are spoken to their ends in the order they came, but that
everybody keeps so many seconds to play: a turn of a new voice, or a host that pauses, is not heard. Fewer
seconds while somebody waits for pages."""


class Openings:
    """Utterances begin while those in progress are sure of pages for what they may still say, and wait
    otherwise, the most urgent first. Those in progress end the sooner the fewer pages there are. For one
    thread at a time.

    Args:
        voices: of all utterances that share the pages.
        show: told how many wait, whenever it has changed.
    """

    def __init__(self, voices: VoiceCache, show: Callable[[int], None] = lambda _: None) -> None:
        self._voices = voices
        self._show = show
        self._shown = 0
        self._ahead = min(PAGES_AHEAD, voices.num_pages // LEAST_PARTS)
        self._let_in: WaveJob | None = None
        self._let_in_s = -math.inf

    def held(self, new: Collection[WaveJob], now: float) -> set[WaveJob]:
        """Of jobs that would begin an utterance now, those that have to wait."""
        # Whose voice is not known is told so at once, and comes again with it.
        able = [job for job in new if self._voices.can_speak(job.chunk.voice_key, job.chunk.prompt)]
        by_urgency = sorted(able, key=priority)
        held = by_urgency[self._fitting(by_urgency) :]
        overdue = self._overdue(held, now)
        if overdue is not None:
            held.remove(overdue)
        self._tell(len(held))
        return set(held)

    def soon_s(self) -> float:
        """Seconds within which somebody runs dry who has to be served before those who came earlier."""
        if self._shown:
            return SOON_LACKING_S
        return SOON_S if self._voices.pages_left < SHORT * self._voices.num_pages else math.inf

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

    def _overdue(self, held: Sequence[WaveJob], now: float) -> WaveJob | None:
        """The one that begins without pages."""
        if self._let_in in held:
            return self._let_in
        self._let_in = None
        if now >= self._let_in_s + BETWEEN_S:
            overdue = (job for job in held if now >= job.arrived + LONGEST_WAIT_S)
            self._let_in = next(overdue, None)
        if self._let_in is not None:
            self._let_in_s = now
        return self._let_in

    def _tell(self, waiting: int) -> None:
        if waiting == self._shown:
            return
        self._shown = waiting
        try:
            self._show(waiting)
        except Exception:
            logger.exception("the number of utterances that wait for pages could not be told")
