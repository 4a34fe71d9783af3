"""How many pages utterances hold, learned from those that have ended."""

from __future__ import annotations

NEWEST = 0.02
"""Share of the newest utterance in what is learned. With 0.05 what is learned of few long ones among many
short ones differs by a third from one time to another."""


class UsualPages:
    """For one thread at a time that learns; what others read meanwhile may be one utterance old.

    Args:
        pages: of an utterance, before any has ended.
        squared: the mean of its square; of speech of all lengths it is about one and a half times the square
            of the mean.
    """

    def __init__(self, pages: float = 12.0, squared: float = 220.0) -> None:
        self._mean, self._mean_squared = pages, squared

    def learn(self, pages: int) -> None:
        """An utterance has ended that held so many."""
        self._mean += NEWEST * (pages - self._mean)
        self._mean_squared += NEWEST * (pages * pages - self._mean_squared)

    @property
    def at_end(self) -> int:
        """That an utterance holds when it ends, on average."""
        return round(self._mean)

    @property
    def in_progress(self) -> float:
        """That one in progress holds, on average, if all go on equally fast.

        Long utterances are in progress for longer, each with half of its pages on average: so this is the
        mean of the squares by twice the mean. Of utterances that are all equally long it is half of what they
        hold at their ends, and much more where a few are very long.
        """
        return self._mean_squared / (2 * self._mean)
