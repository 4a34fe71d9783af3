"""Which utterances may begin and which may go on, and which wait for pages."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Sequence

from cosyvoice_runtime.engine.batches.service import Speaker
from cosyvoice_runtime.engine.batches.turn import WaveJob
from cosyvoice_runtime.engine.batches.voices import VoiceCache

logger = logging.getLogger(__name__)

OF_ONE = 0.6
"""Share of what an utterance in progress holds on average that there is for each one: those that came first
end while others grow. Simulated (benchmarks/simulated_turns.py --answers spoken --seeds 4) with 0.5, 0.6 and
0.7, 16 clients with 100 pages hear first audio after 171, 269 and 523 ms (p95), and 64 with the 490 of an
H100 after 195 or 196; of 256 who begin at once, with 1,034, 38 % hear a pause with 0.6 and 14 with 0.7."""
PAGES_AHEAD = 1
"""That stays free for each of them at least, however much they hold. With two, simulated as above, 64 clients
of an H100 hear first audio after 433 ms (p95)."""
FEWEST_PAGES = 16
"""With fewer in all, nobody waits for any."""
PAGES_OF_FIRST, PAGES_OF_NEXT = 2, 8
"""That a first chunk takes at most, and about as many as a turn gives one that is long."""
LONGEST_WAIT_S, BETWEEN_S = 10.0, 1.0
"""Whoever has waited for longer begins all the same, one in so many seconds: those in progress may say
nothing for minutes, and hold their pages. More at once, and all would run out of them."""

SHORT, SOON_S, SOON_LACKING_S = 0.6, 1.0, 0.6
"""With a smaller share of pages left, utterances are spoken to their ends in the order they came, but that
everybody keeps so many seconds to play: a turn of a new voice, or a host that pauses, is not heard. The last
is while somebody waits for pages, whatever is left, for each second kept is a page held: with a second then,
too, simulated as above, 64 clients of an H100 hear first audio after 207 instead of 195 ms (p95)."""
SCARCE = 0.5
"""With a smaller share left, the earliest utterances are sure of pages to their ends before later ones take
more than their listeners need. Simulated (--clients 16 --pages 150 --answers some-long), 16 clients get 129
s of speech a second with this and 12 without."""


class Openings:
    """Utterances begin while there are pages for what those in progress usually hold, and wait otherwise, the
    most urgent first; and go on, where pages are scarce, the earliest first. One that finds no page loses
    those it has, and computes all of its blocks again, which everybody waits for.

    For one thread at a time.

    Args:
        voices: of all utterances that share the pages.
        show: told how many wait to begin, whenever it has changed.
    """

    def __init__(self, voices: VoiceCache, show: Callable[[int], None] = lambda _: None) -> None:
        self._voices = voices
        self._show = show
        self._shown = 0
        self._limits = voices.num_pages >= FEWEST_PAGES
        self._let_in: WaveJob | None = None
        self._let_in_s = -math.inf

    def held(self, new: Collection[WaveJob], now: float) -> set[WaveJob]:
        """Of jobs that would begin an utterance now, those that have to wait."""
        # Whose voice is not known is told so at once, and comes again with it.
        able = [job for job in new if self._voices.can_speak(job.chunk.voice_key, job.chunk.prompt)]
        by_urgency = sorted(able, key=lambda job: job.deadline)
        held = by_urgency[self._fitting(by_urgency) :]
        overdue = self._overdue(held, now)
        if overdue is not None:
            held.remove(overdue)
        self._tell(len(held))
        return set(held)

    def saving(
        self,
        jobs: Iterable[WaveJob],
        speakers: Callable[[], Sequence[Speaker]],
        unit_tokens: int,
        now: float,
        idle: bool = False,
    ) -> set[WaveJob]:
        """Of jobs of utterances in progress, those that leave pages to earlier ones.

        Who may go on: those for whom there are pages to their ends beside the ends of all that came before,
        whether these have a chunk that waits or not, and who runs dry within `SOON_LACKING_S` while there are
        pages at all. What comes of that is for `WaveService`: those that came last give pages up.

        Args:
            jobs: at most one of each utterance.
            speakers: utterances in progress, the earliest first; asked where pages are scarce.
            unit_tokens: of a page.
            idle: nothing is under way, so somebody has to go on.
        """
        left = self._voices.pages_left
        if not self._limits or left >= SCARCE * self._voices.num_pages:
            return set()
        waiting = {job.chunk.utterance_id: job for job in jobs if not job.chunk.cancel}
        beside_ends, saving, goes_on = left, [], not idle
        for speaker in speakers():
            job = waiting.get(speaker.name)
            to_the_end = self._to_the_end(speaker, job, unit_tokens)
            if job is None:
                beside_ends -= to_the_end
                continue
            next_ones = speaker.lost_pages + min(-(-job.tokens_left // unit_tokens), PAGES_OF_NEXT)
            runs_dry = job.deadline < now + SOON_LACKING_S
            if to_the_end > beside_ends and not (runs_dry and next_ones <= left):
                saving.append(job)
                beside_ends -= to_the_end
                continue
            beside_ends -= to_the_end
            left -= next_ones
            goes_on = True
        return set(saving if goes_on else saving[1:])

    def soon_s(self) -> float:
        """Seconds within which somebody runs dry who has to be served before those who came earlier."""
        if self._shown:
            return SOON_LACKING_S
        return SOON_S if self._voices.pages_left < SHORT * self._voices.num_pages else math.inf

    def _to_the_end(self, speaker: Speaker, job: WaveJob | None, unit_tokens: int) -> int:
        """Pages that an utterance will still take, as far as that is known.

        Args:
            job: its chunk that waits.
        """
        # Behind the last whole block, some tokens wait for those that are looked ahead to.
        wanted = 1 if job is None else -(-job.tokens_left // unit_tokens) + 1
        if job is not None and job.chunk.last:
            return speaker.lost_pages + wanted
        spoken = speaker.pages + speaker.lost_pages
        return speaker.lost_pages + max(self._voices.usual_pages.at_end - spoken, wanted)

    def _fitting(self, jobs: Sequence[WaveJob]) -> int:
        """How many of them may begin: the first one always, where nobody is in progress."""
        if not (jobs and self._limits):
            return len(jobs)
        speaking = self._voices.speaking
        left, spoken = self._voices.pages_left, self._voices.spoken_pages
        of_each = OF_ONE * self._voices.usual_pages.in_progress
        known: set[str] = set()
        for number, job in enumerate(jobs):
            key = job.chunk.voice_key
            left -= PAGES_OF_FIRST
            spoken += PAGES_OF_FIRST
            left -= 0 if key in known else self._voices.pages_to_take(key, job.chunk.prompt)
            known.add(key)
            together = speaking + number + 1
            if left < max(of_each * together - spoken, PAGES_AHEAD * together) and together > 1:
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
