"""Pages of the flow: which utterances begin and go on, and which give pages up, where there are too few."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence

from cosyvoice_runtime.engine.batches.job import WaveJob
from cosyvoice_runtime.engine.batches.utterances import OpenUtterance, Speaker, Utterances
from cosyvoice_runtime.engine.batches.voices import VoiceCache
from cosyvoice_runtime.token2wav.token2wav import AnyToken2Wav

SHARE_OF_EACH = 0.6
"""Share of an utterance's average pages that exist for each one in progress: early ones end while others
grow. Simulated (benchmarks/simulated_turns.py --answers spoken --seeds 4) with 0.5, 0.6 and 0.7, 16 clients
with 100 pages hear first audio after 171, 269 and 523 ms (p95), and 64 with the 490 of an H100 after 195 or
196; of 256 who begin at once, with 1,034, 38 % hear a pause with 0.6 and 14 with 0.7."""
PAGES_AHEAD = 1
"""Fewest pages that stay free for each utterance in progress, however many it holds. With two, simulated as
above, 64 clients of an H100 hear first audio after 433 ms (p95)."""
FEWEST_PAGES = 16
"""Where there are fewer pages in all, no utterance waits for any."""
PAGES_OF_FIRST, PAGES_OF_NEXT = 2, 8
"""Most pages that a first chunk takes, and about as many as a batch gives a long chunk."""
LONGEST_WAIT_S, BETWEEN_S = 10.0, 1.0
"""An utterance that has waited for longer begins without pages, one in so many seconds: those in progress may
say nothing for minutes, and hold their pages. If more began at once, all would run out of pages."""

SHORT, SOON_S, SOON_LACKING_S = 0.6, 1.0, 0.6
"""With a smaller share of pages left, utterances are spoken to their ends in the order they came, but every
listener keeps so many seconds to play: a batch of a new voice, or a host that pauses, is not heard. The last
holds while utterances wait for pages, whatever is left, for each second kept is a page held: with a second
then, too, simulated as above, 64 clients of an H100 hear first audio after 207 instead of 195 ms (p95)."""
SCARCE = 0.5
"""With a smaller share of pages left, the earliest utterances are sure of pages to their ends before later
ones take more than their listeners need. Simulated (--clients 16 --pages 150 --answers some-long), 16 clients
get 129 s of speech a second with this and 12 without."""
SILENT_S = 5.0
"""An utterance without a call for so long waits for text, or for a listener who has left."""


class PageAdmission:
    """Admits utterances while there are pages for what those in progress usually hold.

    The others wait, the most urgent first. Where pages are scarce, the earliest utterances go on first: an
    utterance that finds no page loses those it has and computes all of its blocks again, for which all others
    wait. For one thread at a time.

    Args:
        voices: voices of all utterances that share the pages.
        show: called with the number of utterances that wait to begin, whenever it has changed; raises
            nothing.
    """

    def __init__(self, voices: VoiceCache, show: Callable[[int], None] = lambda _: None) -> None:
        self._voices = voices
        self._show = show
        self._shown = 0
        self._limits = voices.num_pages >= FEWEST_PAGES
        self._let_in: WaveJob | None = None
        self._let_in_s = -math.inf

    def held(self, new: Collection[WaveJob], now: float) -> set[WaveJob]:
        """The jobs that have to wait among those that would begin an utterance now."""
        # A job whose voice is unknown ends at once with that error, and comes again with the voice.
        able = [job for job in new if self._voices.can_speak(job.chunk.voice_key, job.chunk.prompt)]
        by_urgency = sorted(able, key=lambda job: job.deadline)
        held = by_urgency[self._fitting(by_urgency) :]
        overdue = self._overdue(held, now)
        if overdue is not None:
            held.remove(overdue)
        if len(held) != self._shown:
            self._shown = len(held)
            self._show(len(held))
        return set(held)

    def saving(
        self,
        jobs: Iterable[WaveJob],
        speakers: Callable[[], Sequence[Speaker]],
        unit_tokens: int,
        now: float,
        idle: bool = False,
    ) -> set[WaveJob]:
        """The jobs of utterances in progress that leave pages to earlier ones.

        An utterance goes on if there are pages to its end and to the ends of all earlier ones, whether or not
        these have a chunk that waits; or if its listener's audio runs out within `SOON_LACKING_S` and there
        are pages at all. If that is too many, `Preemption` takes pages from the latest ones.

        Args:
            jobs: at most one of each utterance.
            speakers: utterances in progress, the earliest first; called where pages are scarce.
            unit_tokens: tokens of a page.
            idle: whether nothing is under way, so that one job has to go on.
        """
        left = self._voices.pages_left
        if not self._limits or left >= SCARCE * self._voices.num_pages:
            return set()
        waiting = {job.utterance_id: job for job in jobs if not job.chunk.cancel}
        left_at_ends, saving, goes_on = left, [], not idle
        for speaker in speakers():
            job = waiting.get(speaker.name)
            to_the_end = self._to_the_end(speaker, job, unit_tokens)
            if job is not None:
                next_ones = speaker.lost_pages + min(-(-job.tokens_left // unit_tokens), PAGES_OF_NEXT)
                due = job.deadline < now + SOON_LACKING_S
                if to_the_end > left_at_ends and not (due and next_ones <= left):
                    saving.append(job)
                else:
                    left -= next_ones
                    goes_on = True
            left_at_ends -= to_the_end
        return set(saving if goes_on else saving[1:])

    def soon_s(self) -> float:
        """Seconds within which a listener's audio must run out to be served before earlier utterances."""
        if self._shown:
            return SOON_LACKING_S
        return SOON_S if self._voices.pages_left < SHORT * self._voices.num_pages else math.inf

    def _to_the_end(self, speaker: Speaker, job: WaveJob | None, unit_tokens: int) -> int:
        """Pages that an utterance will still take, as far as its waiting chunk ``job`` tells."""
        # Behind the last whole block, some tokens wait for their lookahead.
        wanted = 1 if job is None else -(-job.tokens_left // unit_tokens) + 1
        if job is not None and job.chunk.last:
            return speaker.lost_pages + wanted
        spoken = speaker.pages + speaker.lost_pages
        return speaker.lost_pages + max(self._voices.usual_pages.at_end - spoken, wanted)

    def _fitting(self, jobs: Sequence[WaveJob]) -> int:
        """Number of jobs that may begin: at least one, where no utterance is in progress."""
        if not (jobs and self._limits):
            return len(jobs)
        speaking = self._voices.speaking
        left, spoken = self._voices.pages_left, self._voices.spoken_pages
        of_each = SHARE_OF_EACH * self._voices.usual_pages.in_progress
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
        """The job that begins without pages, because it has waited for too long."""
        if self._let_in in held:
            return self._let_in
        self._let_in = None
        if now >= self._let_in_s + BETWEEN_S:
            overdue = (job for job in held if now >= job.arrived + LONGEST_WAIT_S)
            self._let_in = next(overdue, None)
        if self._let_in is not None:
            self._let_in_s = now
        return self._let_in


class Preemption:
    """Takes pages from later utterances, the latest first, and then from silent ones.

    Their blocks are computed again when they go on. Used with the lock of the utterances.
    """

    def __init__(self, token2wav: AnyToken2Wav, voices: VoiceCache, utterances: Utterances) -> None:
        self._token2wav, self._voices, self._utterances = token2wav, voices, utterances

    def make_room_for(
        self,
        batch: Sequence[OpenUtterance],
        under_way: Collection[str],
        queued: Callable[[], Iterable[str]],
    ) -> None:
        """Take pages that the utterances of a batch lack from others.

        The earliest of these comes first. One for which there are not enough gives up its own for those
        before it; if an earlier batch still computes it, it does so after that has ended.

        Args:
            under_way: ids of utterances in other batches, whose pages stay theirs.
            queued: ids of utterances whose chunks wait.
        """
        left = self._voices.pages_left
        busy = {self._utterances.find(name) for name in under_way}
        for utterance in sorted(batch, key=lambda each: each.number):
            wanted = self._token2wav.wanted_pages(utterance.state)
            givers = self._givers(utterance, under_way, queued) if wanted > left else []
            if wanted <= left + sum(map(self._held, givers)):
                while wanted > left:
                    left += self._take_from(givers.pop(0))
                left -= wanted
            elif self._held(utterance) and utterance not in busy:
                left += self._take_from(utterance)

    def _givers(
        self, utterance: OpenUtterance, under_way: Collection[str], queued: Callable[[], Iterable[str]]
    ) -> list[OpenUtterance]:
        """Utterances whose pages this one may have, in the order in which they give them."""
        others = [
            (name, one)
            for name, one in self._utterances.by_coming()
            if one is not utterance and name not in under_way and self._held(one)
        ]
        later = [one for _, one in others if one.number > utterance.number]
        waiting = set(queued())
        silent = [
            one
            for name, one in others
            if one.number < utterance.number
            and name not in waiting
            and not self._utterances.called_within(one, SILENT_S)
        ]
        return [*later[::-1], *sorted(silent, key=lambda one: one.used_at)]

    def _held(self, utterance: OpenUtterance) -> int:
        return self._token2wav.held_pages(utterance.state)

    def _take_from(self, utterance: OpenUtterance) -> int:
        pages = self._held(utterance)
        self._token2wav.give_up(utterance.state)
        return pages
