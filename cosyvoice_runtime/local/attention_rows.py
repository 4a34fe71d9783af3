"""Rows of the speech LM's attention to its text, one for each speech token, while it speaks a segment."""

from __future__ import annotations

from typing import Any

import numpy as np

from cosyvoice_runtime.alignment.heads import AlignmentHeads
from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.lm.generation import Progress
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.running_batch import RunningBatch


class AttentionRows:
    """Keeps a row for each speech token of a batch of one.

    Args:
        lm: network of PyTorch, whose `scores` are asked for only within :meth:`step`.
        heads: that follow the text.
        prompt: whose text is there as a whole.

    Attributes:
        spoken: tokens that are spoken before each row, and behind the last one.
    """

    def __init__(self, lm: Any, heads: AlignmentHeads, prompt: Prompt) -> None:
        from cosyvoice_runtime.lm.torch.head_scores import HeadScores

        self.spoken = [0]
        self._lm = lm
        self._scores = HeadScores(heads.heads)
        first = prompt.first_text
        self._text = slice(first, first + len(prompt.text))
        self._rows: list[Floats] = []

    def step(self, batch: RunningBatch) -> list[Progress]:
        """Bring the batch forward, and keep what it looked at."""
        self._lm.scores = self._scores
        try:
            progress = batch.step()
        finally:
            self._lm.scores = None
        if any(each.tokens for each in progress):
            shares = self._scores.shares(self._text)[0]
            self._rows.append(shares.mean(0)[-1].cpu().numpy())
        return progress

    def speak(self, count: int) -> None:
        """Note how many tokens are spoken of the last one that was drawn."""
        self.spoken.append(self.spoken[-1] + count)

    def take(self) -> Floats:
        """Rows that have come since the last call, float32 ``[rows, text tokens]``."""
        rows, self._rows = self._rows, []
        return np.stack(rows) if rows else np.zeros((0, self._text.stop - self._text.start), np.float32)
