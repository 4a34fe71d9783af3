"""Turns that follow one another, on a device or on a part of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from queue import SimpleQueue

from cosyvoice_runtime.engine.batches.pace import TurnPace
from cosyvoice_runtime.engine.batches.turn import LaunchedTurn, WaveJob
from cosyvoice_runtime.engine.runtimes.runtime import WaveRuntime


@dataclass(eq=False)
class TurnLane:
    """A device or a part of it that computes one turn after the other.

    Attributes:
        number: 0 for the one that also computes new voices.
        rows: utterances in a turn.
        at_launch: context in which its turns are launched.
        hurried: its turns are of chunks that somebody waits for or soon will.
        of_few: whether turns are its while few utterances are in progress, or while many are; None: always.
        turns: that are under way, for the thread that waits for them; None at the end.
        names: ids of the utterances in them, each as often as it has turns there.
    """

    number: int
    rows: int
    pace: TurnPace
    at_launch: Callable[[], AbstractContextManager[object]] = nullcontext
    hurried: bool = False
    of_few: bool | None = None
    turns: SimpleQueue[LaunchedTurn | None] = field(default_factory=SimpleQueue)
    names: Counter[str] = field(default_factory=Counter)

    def begin(self, turn: LaunchedTurn, unit_tokens: int, begun_s: float, now: float) -> None:
        """Take in a turn that is launched now, and whose launch began before."""
        self.pace.launched(turn.size(unit_tokens), begun_s, now)
        self.names.update(turn.names())
        self.turns.put(turn)

    def let_go(self, turn: LaunchedTurn) -> None:
        """What came of a turn has been answered: its utterances may go on anywhere."""
        self.names -= Counter(turn.names())


def lanes_of(runtime: WaveRuntime, turns_at_once: int) -> list[TurnLane]:
    """All in which turns are computed, by their numbers, and in each of which so many may be under way."""

    def pace() -> TurnPace:
        return TurnPace(turns_at_once, runtime.turns_overlap)

    return [
        TurnLane(0, runtime.rows, pace(), of_few=runtime.of_few),
        *(
            TurnLane(number, turns.rows, pace(), turns.at_launch, turns.hurried, turns.of_few)
            for number, turns in enumerate(runtime.beside, 1)
        ),
    ]


def lanes_at_work(lanes: Sequence[TurnLane], few: bool | None) -> list[TurnLane]:
    """Those that have turns while few utterances are in progress, or while many are."""
    return [lane for lane in lanes if lane.of_few in (None, few)]


LaneJobs = list[tuple[TurnLane, list[WaveJob]]]
"""Each lane with the jobs of which its next turn may have some; a job may be there more than once."""


def by_lane(
    jobs: Sequence[WaveJob],
    lanes: Sequence[TurnLane],
    now: float,
    block_tokens: int,
    few: bool | None = None,
) -> LaneJobs:
    """Those that the next turn of each lane may have; one job may be several lanes', whichever is first.

    Parts of an utterance are never under way in two lanes. A chunk that somebody waits for waits for no turn
    of others: the lane for those takes it, unless a larger one is free that has nothing else to do, or that
    others can do without, or nobody knows when that lane will be. Of several such lanes all but one are for
    first chunks alone.

    Args:
        jobs: at most one of each utterance.
        lanes: by their numbers.
        few: whether few utterances are in progress, where some lanes are for that; new voices are lane 0's
            even so.
    """
    at_work = lanes_at_work(lanes, few)
    for_voices = [lane for lane in lanes[:1] if lane not in at_work]
    new_voices = [job for job in jobs if job.needs_voice] if for_voices else []
    divided = _divided(jobs, at_work, lanes, now, block_tokens)
    return [*divided, *((lane, _open_to(lane, new_voices, lanes)) for lane in for_voices)]


def _divided(
    jobs: Sequence[WaveJob],
    at_work: Sequence[TurnLane],
    lanes: Sequence[TurnLane],
    now: float,
    block_tokens: int,
) -> LaneJobs:
    shared = [lane for lane in at_work if not lane.hurried]
    for_hurried = [lane for lane in at_work if lane.hurried]
    if not for_hurried:
        return [(lane, _open_to(lane, jobs, lanes)) for lane in shared]
    under_way = set[str]().union(*(lane.names for lane in lanes))
    due = {job for job in jobs if job.hurries(now, block_tokens) and job.chunk.utterance_id not in under_way}
    hurried = sorted((job for job in jobs if job in due), key=lambda job: job.deadline)
    others = [job for job in jobs if job not in due]
    # While the GPU's division changes, turns of the other one may be on any multiprocessor.
    others_end = any(lane.pace.busy for lane in lanes if not (lane.hurried or lane in at_work))
    free = [] if others_end else [lane for lane in shared if not lane.pace.busy]
    # Of several, one is left for others.
    idle = next((lane for lane in free[::-1] if len(free) > 1 or not _open_to(lane, others, lanes)), None)
    if idle is not None:
        return [
            (lane, [*_open_to(lane, others, lanes), *(hurried if lane is idle else ())]) for lane in shared
        ]
    if all(lane.pace.delay(now) is None for lane in for_hurried):
        return [(lane, _open_to(lane, [*others, *hurried], lanes)) for lane in shared]
    any_hurried, *for_first = for_hurried
    first = [job for job in hurried if job.begins]
    if any_hurried.pace.delay(now) is None:  # others wait for no lane of which nobody knows when it is free
        later = [*others, *(job for job in hurried if not job.begins)]
    else:
        later = [*others, *hurried[any_hurried.rows :]]
    return [
        (any_hurried, hurried),
        *((lane, first) for lane in for_first),
        *((lane, _open_to(lane, later, lanes)) for lane in shared),
    ]


def _open_to(lane: TurnLane, jobs: Sequence[WaveJob], lanes: Sequence[TurnLane]) -> list[WaveJob]:
    """Jobs whose utterances are under way in no other lane; new voices are lane 0's."""
    elsewhere = set[str]().union(*(other.names for other in lanes if other is not lane))
    return [
        job
        for job in jobs
        if job.chunk.cancel or not ((job.needs_voice and lane.number) or job.chunk.utterance_id in elsewhere)
    ]


def jobs_of(lane: TurnLane, divided: LaneJobs) -> list[WaveJob]:
    """Those of one lane."""
    return next((jobs for other, jobs in divided if other is lane), [])


def changes_in(jobs: Iterable[WaveJob], lanes: Sequence[TurnLane], now: float) -> float:
    """Seconds until the next of the jobs begins to hurry; inf where no lane is for those, or none will."""
    if not any(lane.hurried for lane in lanes):
        return math.inf
    return min((seconds for job in jobs if (seconds := job.hurries_in(now)) > 0), default=math.inf)


def soonest(divided: LaneJobs, now: float) -> tuple[float | None, TurnLane | None]:
    """The lane that has jobs and may be launched first, and in how many seconds; of none None, None.

    No lane may be launched until a turn of it has ended that nobody knows the length of.
    """
    waits = [(lane.pace.delay(now), lane) for lane, jobs in divided if jobs]
    known = [(delay_s, lane) for delay_s, lane in waits if delay_s is not None]
    # Of lanes that are free, that of hurried chunks: its launch is short, and somebody waits.
    return min(
        known,
        key=lambda each: (max(each[0], 0.0), not each[1].hurried, each[1].pace.busy, each[1].number),
        default=(None, None),
    )
