"""How many utterances a machine can speak at a time, learned from how fast it speaks."""

from __future__ import annotations

import math
from typing import Any

MOST_LEARNED = 128
"""Most utterances at a time without a limit in the settings."""
FIRST_MARGIN, LEAST_MARGIN, MOST_MARGIN = 2.0, 1.5, 4.0
"""Speed that a listener is given, in seconds of speech a second: at the start, and what it may become. One is
what he hears; the rest makes up for those who begin, whose first chunk goes before."""
LATE, IN_TIME = 1.03, 0.99997
"""Factors of the margin for a late chunk and one in time. They cancel out when one of 1,000 chunks is late:
an utterance has about six, so that of 100 utterances 99 are continuous."""
APART_S = 1.0
"""Late chunks that follow each other sooner have one cause: a stall makes everybody's chunk late."""
MEMORY_S = 10.0
"""Time constant of the averages, in seconds that places are held."""
ENOUGH_S = 3.0
"""Seconds of held places from which on the averages say something."""


class Capacity:
    """Learns while utterances are spoken, each chunk of them a measurement.

    A machine that is busy shows what it can. One that has little to do shows at least what it can: that never
    lowers the limit. So a GPU that speaks faster to many at a time grows into its limit, and a slow machine,
    or one that others use, shrinks to its own.

    Args:
        learned: field of that name of ``BOARD``, shared by all processes.
    """

    def __init__(self, learned: Any) -> None:
        self._learned = learned

    def fix(self, limit: int | None) -> None:
        """Set the limit, for all processes; None to learn it."""
        self._learned["fixed"] = limit or 0

    @property
    def limit(self) -> int:
        """Utterances that may be spoken at a time; at least one."""
        return self.keeps_up_with if self.learns else int(self._learned["fixed"])

    @property
    def keeps_up_with(self) -> int:
        """Utterances at a time for which the machine is fast enough, as far as is known; at least one."""
        return min(max(int(self.speed / self._margin), 1), MOST_LEARNED)

    @property
    def known(self) -> bool:
        """Whether the limit is more than a guess."""
        return not self.learns or self.speed > 0

    @property
    def speed(self) -> float:
        """Seconds of speech that the machine makes in a second; 0 when nothing is known."""
        return float(self._learned["speed"])

    @property
    def learns(self) -> bool:
        """Whether the limit depends on the speed."""
        return not self._learned["fixed"]

    def start(self, speed: float) -> None:
        """Begin with a speed measured before anybody is admitted."""
        self._learned["speed"] = speed

    def spoke(self, audio_s: float, held_s: float, crowd: float) -> None:
        """Learn from a chunk.

        Args:
            audio_s: its seconds of speech.
            held_s: seconds since the utterance's last chunk, or since it was admitted.
            crowd: utterances in progress meanwhile, this one included.
        """
        learned = self._learned
        kept = math.exp(-held_s / MEMORY_S)
        learned["audio_s"] = learned["audio_s"] * kept + audio_s
        learned["held_s"] = learned["held_s"] * kept + held_s
        learned["crowd_s"] = learned["crowd_s"] * kept + held_s * crowd
        if learned["held_s"] >= ENOUGH_S:
            self._conclude(learned["crowd_s"] / learned["held_s"])

    def played(self, late: bool, now_s: float) -> None:
        """Learn whether a listener heard a pause before a chunk (`Playback.underruns`).

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

    def _conclude(self, crowd: float) -> None:
        """The speed of all is that of one, times how many there were."""
        speed = self._learned["audio_s"] / self._learned["held_s"] * crowd
        if crowd > self.limit / 2 or speed > self.speed:
            self._learned["speed"] = speed
