"""The figures and faults that a drill has shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from drills.front import Front
from drills.listeners import Listener
from measuring.figures import CONTINUOUS_S

RESUMES = "cosyvoice_front_resumes_total"


@dataclass
class Outcome:
    """The figures and faults of a drill.

    Attributes:
        requests: that were made.
        faults: whatever must not be, in words.
        resumed: servers that were lost under a stream that another one went on with.
        refused: requests that were told to come back.
        silences: over a tenth of a second, of listeners who play from the first audio on.
        silence_s: their sum.
        longest_gap_s: without a new sample.
        audio_s: heard.
        took_s: by what was waited for.
    """

    requests: int = 0
    faults: list[str] = field(default_factory=list)
    resumed: int = 0
    refused: int = 0
    silences: int = 0
    silence_s: float = 0.0
    longest_gap_s: float = 0.0
    audio_s: float = 0.0
    took_s: dict[str, float] = field(default_factory=dict)

    def hear(self, listeners: Sequence[Listener]) -> None:
        """Add what these listeners have heard."""
        self.requests += len(listeners)
        for listener in listeners:
            timeline = listener.timeline
            heard = [silence for silence in timeline.underruns_s if silence > CONTINUOUS_S]
            self.silences += len(heard)
            self.silence_s += sum(heard)
            self.longest_gap_s = max([self.longest_gap_s, *timeline.gaps_s])
            self.audio_s += timeline.audio_s


def resumes(fronts: Sequence[Front], key: str = "none") -> int:
    """Streams that went on from another server, so far; a key may have to be known for it."""
    return round(sum(front.number(RESUMES, 'ending="resumed"', key=key) for front in fronts))
