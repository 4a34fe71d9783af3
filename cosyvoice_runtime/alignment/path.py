"""The monotone path of speech tokens through text tokens, found while speech tokens come.

A text token lasts some rows, one for each speech token. Its score is the sum of its rows' log shares, less a
cost of a duration that its letters don't lead one to expect: a hidden semi-Markov model. Viterbi's search
goes over the rows since the last beginning that is settled.

N: text tokens, R: rows that are searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from cosyvoice_runtime.arrays import Array, Floats

LAG = 8
"""Rows after which a beginning is settled: 0.32 s at 25 tokens a second."""
FLOOR = 0.01
"""Added to each share before its logarithm, so that a stray row can't forbid a path."""
WEIGHT = 32.0
"""Cost of a duration, times the squared logarithm of its ratio to the expected one. Of 4, 16, 32 and 64, the
demo voice's errors are least with 16 and 32."""
WORDLESS = 0.0
"""Length of a text token without letters, whose duration is free: a mark may be a pause or nothing."""
BEAM = 60.0
"""Tokens are looked at until all paths that reach one score worse than the best by this much: thirteen rows
without any share."""
MOST_ROWS = 128
"""Rows that are searched; of a token that lasts longer, the first ones are its own."""
MOST_AT_ONCE = 50
"""Most rows that a search adds: its time grows faster than their number. A row of a text of 60 tokens took
5 us with 25 or 50 at once, 7 with 100, 48 with 360, and 57 alone, on a core of an AMD EPYC."""


class TextPath:
    """Where text tokens begin among the rows, each settled ``lag`` rows later and never changed.

    Args:
        lengths: letters of each text token, ``[N]``, N at least 1; :data:`WORDLESS` leaves its duration free.
        rows_per_letter: expected duration of a letter; a token is expected to last one row more.
        lag: rows after which a beginning is settled.

    Attributes:
        starts: first row of each text token whose beginning is settled, ascending; two may be equal.
        rows: how many rows have come.
    """

    def __init__(self, lengths: Sequence[float], rows_per_letter: float, lag: int = LAG) -> None:
        self.starts = [0]
        self.rows = 0
        self._lag = lag
        self._lengths = np.asarray(lengths, dtype=np.float64)
        self._expected = 1 + rows_per_letter * self._lengths
        self._costs = _costs(self._lengths, self._expected)
        self._logs = np.zeros((0, len(lengths)))
        """Log shares of the last rows, ``[R, N]``."""

    def push(self, shares: Floats) -> None:
        """Take rows of the attention's shares of the text tokens, float32 ``[rows, N]``, each of sum 1."""
        for start in range(0, len(shares), MOST_AT_ONCE):
            self._add(shares[start : start + MOST_AT_ONCE])

    def _add(self, shares: Floats) -> None:
        self._logs = np.concatenate([self._logs, np.log(shares.astype(np.float64) + FLOOR)])
        self.rows += len(shares)
        if len(self.starts) < len(self._lengths):
            self._settle(self.rows - self._lag)
        spoken = self.starts[-1] - (self.rows - len(self._logs))
        self._logs = self._logs[max(spoken, len(self._logs) - MOST_ROWS) :]

    def finish(self) -> list[int]:
        """Settle all that is left and return the first row of each text token, ``[N]``.

        Tokens that no path has reached begin behind the last row.
        """
        count = len(self._lengths)
        if len(self.starts) < count:
            self._settle(self.rows, whole=True)
        self.starts += [self.rows] * (count - len(self.starts))
        return self.starts

    def _settle(self, until: int, whole: bool = False) -> None:
        """Settle the beginnings that the likeliest path has up to a row.

        Args:
            whole: the text has been spoken to its end, unless no path gets there.
        """
        sums = np.zeros((len(self._lengths), len(self._logs) + 1))
        np.cumsum(self._logs.T, axis=1, out=sums[:, 1:])
        ended = np.full(sums.shape[1], -np.inf)
        ended[0] = 0.0
        lasted, first_of_row = _durations(sums.shape[1])
        traces: list[Array] = []
        best = -np.inf, 0, 0
        for token in range(len(self.starts) - 1, len(self._lengths)):
            begun = ended - sums[token]
            over, still = self._costs_of(token)
            lasting = begun + still[len(begun) - 1 :: -1]
            row = int(lasting.argmax())
            reached = float(lasting[row] + sums[token, -1])
            best = max(best, (reached, token, row))
            if reached < best[0] - BEAM and not whole:
                break
            scores = begun + over.take(lasted)
            traces.append(scores.argmax(1))
            ended = scores.take(first_of_row + traces[-1]) + sums[token]
        if whole and ended[-1] > best[0] - BEAM:
            best = float(ended[-1]), len(self._lengths), len(self._logs)
        self._take(traces, best[1], best[2], until)

    def _take(self, traces: Sequence[Array], token: int, row: int, until: int) -> None:
        """Settle beginnings, back from a token that begins in a row of those that are searched."""
        first, known = self.rows - len(self._logs), len(self.starts)
        found = [row] if known <= token < len(self._lengths) else []
        for trace in traces[max(token - known, 0) : 0 : -1]:
            row = int(trace[row])
            found.append(row)
        self.starts += [first + row for row in found[::-1] if first + row <= until]

    def _costs_of(self, token: int) -> tuple[Array, Array]:
        """Costs as `_costs` has them of durations among the rows that are searched."""
        earlier = self.rows - len(self._logs) - self.starts[-1]
        if earlier and token == len(self.starts) - 1:  # This one has begun before them.
            own = slice(token, token + 1)
            over, still = _costs(self._lengths[own], self._expected[own], earlier)
            return over[0], still[0]
        over, still = self._costs
        return over[token], still[token]


@cache
def _durations(ends: int) -> tuple[Array, Array]:
    """Rows between each end and each beginning, -1 where a token would end before it begins, which is the
    last of the costs; and the place of each end's first one among them all."""
    lasted = np.arange(ends)[:, None] - np.arange(ends)
    lasted[lasted < 0] = -1
    return lasted, ends * np.arange(ends)


def _costs(lengths: Array, expected: Array, earlier: int = 0) -> tuple[Array, Array]:
    """The cost of each duration of text tokens ``[N]``, 0 and less, from so many rows on.

    Returns:
        of those that are over, with a last one that forbids a duration, and of those that still last.
    """
    ages = earlier + np.arange(MOST_ROWS + MOST_AT_ONCE + 1)
    costs = -WEIGHT * np.log((ages + 1) / (expected[:, None] + 1)) ** 2
    costs[lengths == WORDLESS] = 0.0
    forbidden = np.full((len(costs), 1), -np.inf)
    return np.hstack([costs, forbidden]), np.where(ages < expected[:, None], 0.0, costs)
