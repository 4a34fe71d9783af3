"""Turns that follow one another, on a device or on a part of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from queue import SimpleQueue

from cosyvoice_runtime.serving.token2wav.pace import TurnPace
from cosyvoice_runtime.serving.token2wav.turn import LaunchedTurn, WaveJob, priority


@dataclass(eq=False)
class TurnLane:
    """
    Attributes:
        beside: for first chunks alone, on another part of the GPU than other turns.
        rows: utterances in a turn.
        at_launch: context in which its turns are launched.
        turns: that are under way, for the thread that waits for them; None at the end.
        names: utterances in them.
    """

    beside: bool
    rows: int
    pace: TurnPace
    at_launch: Callable[[], AbstractContextManager[object]] = nullcontext
    turns: SimpleQueue[LaunchedTurn | None] = field(default_factory=SimpleQueue)
    names: Counter[str] = field(default_factory=Counter)

    def begin(self, turn: LaunchedTurn, unit_tokens: int, begun_s: float, now: float) -> None:
        """A turn's launch began and is done."""
        self.pace.launched(turn.size(unit_tokens), begun_s, now)
        self.names.update(turn.names())
        self.turns.put(turn)

    def let_go(self, turn: LaunchedTurn) -> None:
        """What came of a turn has been answered: its utterances may go on anywhere."""
        self.names -= Counter(turn.names())

    def holds(self, job: WaveJob) -> bool:
        """Whether a turn of its utterance is under way here."""
        return self.names[job.chunk.utterance_id] > 0


LaneJobs = list[tuple[TurnLane, list[WaveJob]]]


def by_lane(jobs: Sequence[WaveJob], lanes: Sequence[TurnLane], now: float) -> LaneJobs:
    """Whose jobs are whose, each with those that its next turn may have.

    A first chunk waits for no turn of others: a lane beside takes it, unless nothing else is to be done on
    the larger part, where it takes less time, or that is free while nobody knows when the lane beside will
    be. Parts of an utterance are never under way in two lanes.

    Args:
        jobs: at most one of each utterance.
        lanes: that of all turns, and perhaps one beside.
    """
    main, *beside = lanes
    if not beside:
        return [(main, list(jobs))]
    [first] = beside
    new = (job for job in jobs if job.is_first(now) and not (first.holds(job) or main.holds(job)))
    opening = sorted(new, key=priority)
    others = (job for job in jobs if job not in opening)
    rest = [job for job in others if job.chunk.cancel or not first.holds(job)]
    if not rest and not main.pace.busy:
        return [(main, opening)]
    if first.pace.delay(now) is None:
        return [(main, [*rest, *opening])]
    return [(first, opening), (main, [*rest, *opening[first.rows :]])]


def jobs_of(lane: TurnLane, divided: LaneJobs) -> list[WaveJob]:
    """Those of one lane."""
    return next((jobs for other, jobs in divided if other is lane), [])


def soonest(divided: LaneJobs, now: float) -> tuple[float | None, TurnLane | None]:
    """The lane that has jobs and may be launched first, and in how many seconds; of none None, None.

    No lane may be launched until a turn of it has ended that nobody knows the length of.
    """
    waits = [(lane.pace.delay(now), lane) for lane, jobs in divided if jobs]
    known = [(delay_s, lane) for delay_s, lane in waits if delay_s is not None]
    # Of lanes that are free, the one beside: its launch is short, and somebody waits for a first sound.
    return min(known, key=lambda each: (max(each[0], 0.0), not each[1].beside), default=(None, None))
