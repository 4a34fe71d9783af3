"""The likeliest way of speech tokens through text tokens, which may jump back and ahead.

Unlike `path.TextPath` it expects no durations and no order: each row, one for each speech token, stays at the
text token of the row before, goes on to the next one, or jumps to any at a cost. Viterbi's search.

N: text tokens.
"""

from __future__ import annotations

import numpy as np

from cosyvoice_runtime.arrays import Array, Floats

FLOOR = 0.01
"""Added to each share before its logarithm, as in `path.TextPath`."""
JUMP = 4.0
"""Cost of a jump: that of one row that looks elsewhere. Of 2, 3, 4, 5 and 6, jumps of right speech of the
demo voice are rare from here on, and those of wrong speech the most."""


class JumpingPath:
    """Takes rows as they come, which costs some ten microseconds each.

    Args:
        tokens: N, at least 1.
    """

    def __init__(self, tokens: int) -> None:
        self._numbers = np.arange(tokens)
        self._scores = np.full(tokens, -JUMP)
        self._scores[0] = 0.0
        self._traces: list[Array] = []

    @property
    def place(self) -> int:
        """The text token at which the likeliest path ends so far."""
        return int(self._scores.argmax())

    def push(self, row: Floats) -> None:
        """Take the attention's shares of the text tokens, float32 ``[N]`` of sum 1."""
        stayed = self._scores
        stepped = np.concatenate([[-np.inf], stayed[:-1]])
        best = self.place
        came, scores = self._numbers - (stepped > stayed), np.maximum(stayed, stepped)
        jumps = scores < stayed[best] - JUMP
        came[jumps], scores[jumps] = best, stayed[best] - JUMP
        self._traces.append(came)
        self._scores = scores + np.log(row + FLOOR)

    def places(self) -> Array:
        """The text token of each row on the likeliest path, int64 ``[rows]``."""
        found = np.zeros(len(self._traces), np.int64)
        place = self.place
        for row in range(len(self._traces) - 1, -1, -1):
            found[row] = place
            place = self._traces[row][place]
        return found
