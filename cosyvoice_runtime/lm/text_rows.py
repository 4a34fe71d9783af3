"""Rows of attention: each tells where in its text a speech token of an utterance looks."""

from __future__ import annotations

from collections import deque
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np

from cosyvoice_runtime.arrays import Floats


class TextRows:
    """Keeps a row for each speech token of an utterance.

    A pass looks before an id is drawn from its logits, and an id that is no speech has no row.

    Args:
        text: positions of the text to speak in the cache.
    """

    def __init__(self, text: slice) -> None:
        self.text = text
        self._looked: deque[Floats] = deque()
        self._rows: list[Floats] = []

    def look(self, row: Floats) -> None:
        """Take what a pass looked at, float32 ``[text tokens]`` of sum 1, before its id is drawn."""
        self._looked.append(row)

    def draw(self, is_speech: bool) -> None:
        """Note the next id, in the order in which passes looked."""
        row = self._looked.popleft()
        if is_speech:
            self._rows.append(row)

    def take(self) -> Floats:
        """Rows since the last call, float32 ``[rows, text tokens]``."""
        rows, self._rows = self._rows, []
        return np.array(rows, np.float32).reshape(-1, self.text.stop - self.text.start)


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
