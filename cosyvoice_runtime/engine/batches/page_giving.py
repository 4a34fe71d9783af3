"""Who gives up pages for whom, where there are not enough."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from cosyvoice_runtime.engine.batches.utterances import OpenUtterance, Utterances
from cosyvoice_runtime.engine.batches.voices import VoiceCache
from cosyvoice_runtime.token2wav.any_token2wav import AnyToken2Wav

SILENT_S = 5.0
"""Whom nobody has called for so long waits for text, or for a listener who has left."""


class PageGiving:
    """Those that came later give, the latest first, and then those that nobody has called for lately.

    Their blocks are computed again when they go on. For whoever holds the lock of the utterances.
    """

    def __init__(self, token2wav: AnyToken2Wav, voices: VoiceCache, utterances: Utterances) -> None:
        self._token2wav, self._voices, self._utterances = token2wav, voices, utterances

    def make_room_for(
        self,
        turn: Sequence[OpenUtterance],
        under_way: Collection[str],
        queued: Callable[[], Iterable[str]],
    ) -> None:
        """Have others give up pages that the utterances of a turn lack.

        The earliest of these comes first; one for which there are not enough gives up its own, for those that
        came before it; or does so itself, once its earlier part has ended, if that is under way.

        Args:
            under_way: ids of those in turns that are, whose pages nobody may take.
            queued: ids of those whose chunks wait.
        """
        left = self._voices.pages_left
        busy = {self._utterances.find(name) for name in under_way}
        for utterance in sorted(turn, key=lambda each: each.number):
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
        """Who has pages that another one may have, in the order in which they give them."""
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
