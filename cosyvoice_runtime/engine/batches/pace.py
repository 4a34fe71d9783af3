"""When turns end, and so when the next one may be launched."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cosyvoice_runtime.gpu.buckets import finer_bucket

MARGIN_S = 0.002
"""The next turn is there this long before the one under way ends: estimates vary."""
VOCODER_S = 0.006
"""And this much longer, where its flow begins beside that one's vocoder."""
NEWEST = 0.3
"""Share of the newest time in an average."""


class TurnSize(NamedTuple):
    """Turns of one size take about as long: they are the same captured call.

    Attributes:
        rows: utterances, up to the next size that most calls are captured in.
        units: of the longest row, in which chunks may be cut.
    """

    rows: int
    units: int

    @classmethod
    def of(cls, tokens: Sequence[int], unit_tokens: int) -> TurnSize:
        """Of rows with so many tokens."""
        return cls(finer_bucket(len(tokens)), -(-max(tokens) // unit_tokens))


@dataclass
class TurnUnderWay:
    """What the time that it takes depends on, and from when that counts.

    Attributes:
        begun_s: when its launch began, or the turn before it ended.
        ahead: it was launched while that one was under way.
    """

    size: TurnSize | None
    begun_s: float
    ahead: bool


class TurnPace:
    """Turns under way, and how long turns of their size took.

    A host needs many milliseconds to launch a turn. A GPU that gets the next one shortly before it has done
    the last does not wait for that; one that gets it earlier makes those wait who come meanwhile.

    Args:
        at_once: turns that may be under way. With one, the next is launched when it has ended.
        overlaps: a turn begins beside the end of the one before.
    """

    def __init__(self, at_once: int, overlaps: bool = False) -> None:
        self._at_once = at_once
        self._ahead_s = MARGIN_S + (VOCODER_S if overlaps else 0.0)
        self._turns: deque[TurnUnderWay] = deque()
        self._took_s: dict[tuple[TurnSize, bool], float] = {}
        self._launch_s = 0.0

    @property
    def busy(self) -> bool:
        """Whether a turn is under way."""
        return bool(self._turns)

    def delay(self, now: float) -> float | None:
        """Seconds until a turn may be launched, 0 or less for now; None: not before one has ended."""
        if not self._turns:
            return 0.0
        turn = self._turns[0]
        took_s = self._took_s.get((turn.size, turn.ahead)) if turn.size is not None else None
        if len(self._turns) >= self._at_once or took_s is None:
            return None
        return turn.begun_s + took_s - self._launch_s - self._ahead_s - now

    def launched(self, size: TurnSize | None, begun_s: float, now: float) -> None:
        """A turn's launch began and is done; without a size, nobody knows how long the turn takes."""
        if size is not None:
            spent_s = now - begun_s
            # A longer one counts at once: a launch that comes too late leaves the GPU idle.
            self._launch_s = max(spent_s, _averaged(self._launch_s, spent_s))
        self._turns.append(TurnUnderWay(size, begun_s, ahead=bool(self._turns)))

    def ended(self, now: float) -> float:
        """The earliest turn has ended; the seconds it took."""
        turn = self._turns.popleft()
        took_s = now - turn.begun_s
        if turn.size is not None:
            key = turn.size, turn.ahead
            self._took_s[key] = _averaged(self._took_s.get(key, took_s), took_s)
        for later in self._turns:  # which the device computes from now on
            later.begun_s = max(later.begun_s, now)
        return took_s


def _averaged(average: float, newest: float) -> float:
    return (1 - NEWEST) * average + NEWEST * newest
