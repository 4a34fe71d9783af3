"""Batches that are being computed, and utterances that have ended but may still be written by them."""

from __future__ import annotations

from collections.abc import Callable

from cosyvoice_runtime.engine.batches.utterances import OpenUtterance


class BatchesUnderWay:
    """For whoever holds the lock of the utterances.

    Args:
        free: frees what an utterance held that has ended.
    """

    def __init__(self, free: Callable[[OpenUtterance], None]) -> None:
        self._free = free
        self._batches: list[frozenset[str]] = []
        self._ended: list[tuple[str, OpenUtterance]] = []

    @property
    def names(self) -> frozenset[str]:
        """Ids of the utterances in all of them."""
        return frozenset().union(*self._batches)

    def beside(self, batch: frozenset[str]) -> frozenset[str]:
        """Ids of those in all but this one."""
        return frozenset[str]().union(*(each for each in self._batches if each is not batch))

    def begin(self, batch: frozenset[str]) -> None:
        """Nothing that these utterances hold is free from now on."""
        self._batches.append(batch)

    def end(self, batch: frozenset[str]) -> None:
        """What its utterances held is free that have ended and are in no other one."""
        self._batches.remove(batch)
        self._let_go()

    def leave(self, name: str, utterance: OpenUtterance) -> None:
        """It has ended: what it holds is free when no batch that is under way may write there."""
        self._ended.append((name, utterance))
        self._let_go()

    def _let_go(self) -> None:
        under_way = self.names
        free = [utterance for name, utterance in self._ended if name not in under_way]
        self._ended = [(name, utterance) for name, utterance in self._ended if name in under_way]
        for utterance in free:
            self._free(utterance)
