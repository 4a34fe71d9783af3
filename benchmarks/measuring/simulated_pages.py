"""Pages of a simulated GPU: as voices and utterances hold them, but of no bytes."""

from __future__ import annotations

from collections.abc import Collection

from cosyvoice_runtime.engine.batches.voices import UsualPages


class SimulatedPages:
    """The part of a `VoiceCache` that `PageAdmission` asks, for one voice.

    Attributes:
        num_pages: all there are.
        held: pages of each utterance in progress, by its number; None: it has lost them.
        lost: utterances that did, each time.
        without: chunks that were computed without pages.
        usual_pages: of an utterance.
    """

    def __init__(self, num_pages: int, of_voice: int) -> None:
        self.num_pages = num_pages
        self._of_voice = of_voice
        self.usual_pages = UsualPages()
        self.held: dict[int, int | None] = {}
        self.lost = self.without = 0

    @property
    def spoken_pages(self) -> int:
        return sum(pages or 0 for pages in self.held.values())

    @property
    def pages_left(self) -> int:
        return self.num_pages - self._of_voice - self.spoken_pages

    @property
    def speaking(self) -> int:
        return len(self.held)

    def can_speak(self, *_: object) -> bool:
        return True

    def pages_to_take(self, *_: object) -> int:
        return 0

    def take(self, utterance: int, before: int, new: int, under_way: Collection[int]) -> int:
        """Have pages for the next part of an utterance.

        Args:
            before: blocks that are behind it.
            new: blocks of the part.
            under_way: utterances whose pages nobody may take.

        Returns:
            blocks that are computed again: all before if there were none for them.
        """
        held = self.held.setdefault(utterance, 0)
        again = before if held is None else 0
        for other in sorted(self.held, reverse=True):
            if again + new <= self.pages_left or other <= utterance:
                break
            if self.held[other] and other not in under_way:
                self.held[other] = None
                self.lost += 1
        if again + new > self.pages_left:
            self.lost += held is not None
            self.held[utterance] = None
            self.without += 1
            return before
        self.held[utterance] = before + new
        return again

    def end(self, utterance: int, pages: int) -> None:
        """An utterance of so many pages has ended."""
        del self.held[utterance]
        self.usual_pages.learn(pages)
