"""The number of utterances that a machine keeps up with, learned from those that it speaks."""

from __future__ import annotations

import math
from typing import Any

MOST_LEARNED = 128
"""The most utterances at a time if the settings have no limit."""
FIRST_MARGIN, LEAST_MARGIN, MOST_MARGIN = 2.0, 1.5, 4.0
"""The speed reserved for a listener in seconds of speech a second: at the start, and its bounds. A listener
needs one; the rest serves new utterances, whose first chunk has priority."""
LATE, IN_TIME = 1.03, 0.99997
"""The factors of the margin for a late chunk and for one in time. They balance when one of 1,000 chunks is
late: an utterance has about six, so 99 of 100 utterances are continuous. A first chunk is never late, and
counts as neither."""
APART_S = 1.0
"""Late chunks closer together than this have one cause, because a stall delays all utterances."""
MEMORY_S = 10.0
"""The time constant of the averages, in seconds of utterances in progress."""
ENOUGH_S = 3.0
"""The seconds of utterances in progress after which the averages are meaningful."""
LEARNED = ("fixed", "speed", "margin", "audio_s", "held_s", "concurrent_s", "late_s")
"""The fields of the board for :class:`Capacity`."""


class Capacity:
    """Learns from utterances that are heard to their end.

    Those that end early show less speed than the machine has: beginning an utterance takes longer than going
    on with it, and what was being made for a client that left is lost.

    A machine that is busy shows what it can. One that has little to do shows at least what it can: that never
    lowers the limit. So a GPU that speaks faster to many at a time grows into its limit, and a slow machine,
    or one that others use, shrinks to its own.

    Args:
        learned: a record of :data:`LEARNED`, shared by all processes; all zero at first.
    """

    def __init__(self, learned: Any) -> None:
        self._learned = learned

    def fix(self, limit: int | None) -> None:
        """Set the limit for all processes; None learns it."""
        self._learned["fixed"] = limit or 0

    @property
    def limit(self) -> int:
        """The most utterances that may be spoken at a time; at least one."""
        return int(self._learned["fixed"]) or self.keeps_up_with

    @property
    def keeps_up_with(self) -> int:
        """The utterances for which the machine is fast enough, as far as is known; at least one."""
        return min(max(int(self.speed / self._margin), 1), MOST_LEARNED)

    @property
    def known(self) -> bool:
        """Whether the limit is more than a guess."""
        return bool(self._learned["fixed"] or self.speed)

    @property
    def speed(self) -> float:
        """The seconds of speech that the machine makes in a second; 0 if unknown."""
        return float(self._learned["speed"])

    def start(self, speed: float) -> None:
        """Start with a speed that was measured before the first client."""
        self._learned["speed"] = speed

    def spoke(self, audio_s: float, held_s: float, count: float) -> None:
        """Learn from an utterance, or from a part of a long one.

        Args:
            audio_s: seconds of speech in it.
            held_s: seconds that it was in progress.
            count: the mean number of utterances in progress meanwhile, including this one.
        """
        learned = self._learned
        kept = math.exp(-held_s / MEMORY_S)
        learned["audio_s"] = learned["audio_s"] * kept + audio_s
        learned["held_s"] = learned["held_s"] * kept + held_s
        learned["concurrent_s"] = learned["concurrent_s"] * kept + held_s * count
        if learned["held_s"] >= ENOUGH_S:
            self._conclude(learned["concurrent_s"] / learned["held_s"])

    def played(self, late: bool, now_s: float) -> None:
        """Learn whether playback paused before a chunk (`Playback.underruns`).

        Args:
            now_s: monotonic, the same for all processes.
        """
        if late and now_s < self._learned["late_s"] + APART_S:
            return
        if late:
            self._learned["late_s"] = now_s
        margin = self._margin * (LATE if late else IN_TIME)
        self._learned["margin"] = min(max(margin, LEAST_MARGIN), MOST_MARGIN)

    @property
    def _margin(self) -> float:
        return float(self._learned["margin"]) or FIRST_MARGIN

    def _conclude(self, count: float) -> None:
        """The speed of all utterances: the speed of one times their number."""
        speed = self._learned["audio_s"] / self._learned["held_s"] * count
        if count > self.limit / 2 or speed > self.speed:
            self._learned["speed"] = speed
