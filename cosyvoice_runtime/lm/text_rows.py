"""Rows of attention: each tells where in its text a speech token of an utterance looks."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np

from cosyvoice_runtime.arrays import Floats


class TextRows(Protocol):
    """The rows of an utterance, one for each speech token that was drawn."""

    def take(self, count: int) -> Floats:
        """Rows of the next tokens, which have been drawn: float32 ``[count, text tokens]``, each of sum 1."""

    def close(self) -> None:
        """Keep the rows of tokens drawn so far, and expect no others: the utterance gives up its slot."""


class LookedRows:
    """`TextRows` that passes bring one by one.

    Args:
        text: positions of the text to speak in the cache.
    """

    def __init__(self, text: slice) -> None:
        self.text = text
        self._rows: list[Floats] = []

    def look(self, row: Floats) -> None:
        """Take what a pass looked at, float32 ``[text tokens]`` of sum 1, before an id is drawn from it."""
        self._rows.append(row)

    def take(self, count: int) -> Floats:
        """As `TextRows` does; what was looked at before a stop id is never taken."""
        rows, self._rows = self._rows[:count], self._rows[count:]
        return np.array(rows, np.float32).reshape(count, self.text.stop - self.text.start)

    def close(self) -> None:
        """Do nothing: all rows are here."""


class FollowedHeads(Protocol):
    """The attention heads of a network that follow the text."""

    def watched(self) -> AbstractContextManager[None]:
        """A context in which a pass keeps what its last positions look at."""

    def row(self, place: int, slot: int, text: slice) -> Floats:
        """The text's shares of the heads' attention, on average: float32 ``[text tokens]`` of sum 1.

        Args:
            place: of the sequence in the pass, which is over.
            slot: of the sequence in the cache, whose length is that behind the pass.
            text: positions of the text.
        """
