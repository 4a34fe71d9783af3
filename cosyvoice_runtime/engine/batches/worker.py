"""Workers that compute batches one after the other; jobs are assigned to them, and their launches are
timed."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from queue import SimpleQueue

from cosyvoice_runtime.engine.batches.job import BatchSize, LaunchedBatch, WaveJob
from cosyvoice_runtime.engine.runtimes.runtime import WaveRuntime

MARGIN_S = 0.002
"""The next batch is launched this long before the one under way ends, because estimates vary."""
VOCODER_S = 0.006
"""The launch is this much earlier where a flow begins while the vocoder of the batch before runs."""
NEWEST = 0.3
"""Share of the newest time in an average."""


@dataclass
class BatchUnderWay:
    """A batch being computed: the size that its duration depends on, and the time from which it counts.

    Attributes:
        size: its rows and blocks.
        begun_s: when its launch began, or the batch before it ended.
        ahead: it was launched while that one was under way.
    """

    size: BatchSize | None
    begun_s: float
    ahead: bool


class Pace:
    """The batches of a worker that are under way, and how long batches of their size took.

    A host needs many milliseconds to launch a batch. A GPU that gets the next one shortly before it has done
    the last does not wait for it; an earlier launch only makes chunks wait longer that come meanwhile.

    Args:
        at_once: most batches under way. With one, the next is launched when it has ended.
        overlaps: whether a batch begins while the one before ends.
    """

    def __init__(self, at_once: int, overlaps: bool = False) -> None:
        self._at_once = at_once
        self._ahead_s = MARGIN_S + (VOCODER_S if overlaps else 0.0)
        self._batches: deque[BatchUnderWay] = deque()
        self._took_s: dict[tuple[BatchSize, bool], float] = {}
        self._launch_s = 0.0

    @property
    def busy(self) -> bool:
        """Whether a batch is under way."""
        return bool(self._batches)

    def delay(self, now: float) -> float | None:
        """Seconds until a batch may be launched, 0 or less for at once; None if one has to end first."""
        if not self._batches:
            return 0.0
        batch = self._batches[0]
        took_s = self._took_s.get((batch.size, batch.ahead)) if batch.size is not None else None
        if len(self._batches) >= self._at_once or took_s is None:
            return None
        return batch.begun_s + took_s - self._launch_s - self._ahead_s - now

    def launched(self, size: BatchSize | None, begun_s: float, now: float) -> None:
        """Note a batch's launch, from its beginning to now; without a size, its time is unknown."""
        if size is not None:
            spent_s = now - begun_s
            # A longer time counts at once: a launch that comes too late leaves the GPU idle.
            self._launch_s = max(spent_s, _averaged(self._launch_s, spent_s))
        self._batches.append(BatchUnderWay(size, begun_s, ahead=bool(self._batches)))

    def ended(self, now: float) -> float:
        """Note that the earliest batch has ended, and return the seconds it took."""
        batch = self._batches.popleft()
        took_s = now - batch.begun_s
        if batch.size is not None:
            key = batch.size, batch.ahead
            self._took_s[key] = _averaged(self._took_s.get(key, took_s), took_s)
        for later in self._batches:  # The device computes the next one from now on.
            later.begun_s = max(later.begun_s, now)
        return took_s


def _averaged(average: float, newest: float) -> float:
    return (1 - NEWEST) * average + NEWEST * newest


@dataclass(eq=False)
class Worker:
    """A device, or a partition of one, that computes one batch after the other.

    Attributes:
        number: 0 for the one that also computes new voices.
        rows: most utterances in a batch.
        at_launch: context in which its batches are launched.
        urgent: whether its batches are of chunks whose listeners wait, or soon will.
        of_few: whether it works while few utterances are in progress, or while many are; None: always.
        batches: batches under way, for the thread that waits for them; None at the end.
        utterances: ids of the utterances in them, each as often as it has batches there.
    """

    number: int
    rows: int
    pace: Pace
    at_launch: Callable[[], AbstractContextManager[object]] = nullcontext
    urgent: bool = False
    of_few: bool | None = None
    batches: SimpleQueue[LaunchedBatch | None] = field(default_factory=SimpleQueue)
    utterances: Counter[str] = field(default_factory=Counter)

    def begin(self, batch: LaunchedBatch, unit_tokens: int, begun_s: float, now: float) -> None:
        """Add a batch whose launch began at this time."""
        self.pace.launched(batch.size(unit_tokens), begun_s, now)
        self.utterances.update(batch.names())
        self.batches.put(batch)

    def let_go(self, batch: LaunchedBatch) -> None:
        """Note that a batch has been answered: its utterances may go on with any worker."""
        self.utterances -= Counter(batch.names())

    def works_for(self, few: bool | None) -> bool:
        """Whether it works while few utterances are in progress (or, if false, many)."""
        return self.of_few in (None, few)


def workers_of(runtime: WaveRuntime, at_once: int) -> list[Worker]:
    """All workers of a runtime by their numbers, each with at most ``at_once`` batches under way."""

    def pace() -> Pace:
        return Pace(at_once, runtime.batches_overlap)

    return [
        Worker(0, runtime.rows, pace(), of_few=runtime.of_few),
        *(
            Worker(number, each.rows, pace(), each.at_launch, each.urgent, each.of_few)
            for number, each in enumerate(runtime.concurrent, 1)
        ),
    ]


Assignment = dict[Worker, list[WaveJob]]
"""Each worker's jobs, of which its next batch may have some; a job may be several workers', for the first."""


def assign(
    jobs: Sequence[WaveJob], workers: Sequence[Worker], now: float, block_tokens: int, few: bool | None = None
) -> Assignment:
    """Assign jobs to the workers whose next batches may have them.

    Two workers never have chunks of one utterance under way. An urgent chunk does not wait for batches of
    others: a worker for such chunks takes it, unless the shared one is free and has nothing else to do, or it
    is unknown when a worker for them will be free. Of several such workers, all but one are for first chunks.

    Args:
        jobs: at most one of each utterance.
        workers: workers by their numbers; at any time one of those at work is shared, which means not urgent.
        few: whether few utterances are in progress, where that matters; new voices are worker 0's even so.
    """
    shared = next(worker for worker in workers if worker.works_for(few) and not worker.urgent)
    for_urgent = [worker for worker in workers if worker.works_for(few) and worker.urgent]
    assigned = _assigned(jobs, shared, for_urgent, workers, now, block_tokens)
    if workers[0] not in assigned:
        assigned[workers[0]] = _open_to(workers[0], [job for job in jobs if job.needs_voice], workers)
    return assigned


def _assigned(
    jobs: Sequence[WaveJob],
    shared: Worker,
    for_urgent: Sequence[Worker],
    workers: Sequence[Worker],
    now: float,
    block_tokens: int,
) -> Assignment:
    under_way = set[str]().union(*(worker.utterances for worker in workers))
    urgent = sorted(
        (job for job in jobs if job.is_urgent(now, block_tokens) and job.utterance_id not in under_way),
        key=lambda job: job.deadline,
    )
    others = [job for job in jobs if job not in urgent]
    delays = [worker.pace.delay(now) for worker in for_urgent]
    if all(delay is None for delay in delays):
        return {shared: _open_to(shared, jobs, workers)}
    at_work = (shared, *for_urgent)
    # While the GPU's division changes, batches of the old one may be on any multiprocessor.
    clear = not any(worker.pace.busy for worker in workers if not (worker.urgent or worker in at_work))
    if clear and not shared.pace.busy and not _open_to(shared, others, workers):
        return {shared: urgent}
    any_urgent, *for_first = for_urgent
    first = [job for job in urgent if job.begins]
    # Later chunks don't wait for a worker without an estimate of when it will be free.
    left = [job for job in urgent if not job.begins] if delays[0] is None else urgent[any_urgent.rows :]
    return {
        any_urgent: urgent,
        **dict.fromkeys(for_first, first),
        shared: _open_to(shared, [*others, *left], workers),
    }


def _open_to(worker: Worker, jobs: Sequence[WaveJob], workers: Sequence[Worker]) -> list[WaveJob]:
    """Jobs whose utterances no other worker has under way; new voices are worker 0's."""
    elsewhere = set[str]().union(*(other.utterances for other in workers if other is not worker))
    return [
        job
        for job in jobs
        if job.chunk.cancel or not ((job.needs_voice and worker.number) or job.utterance_id in elsewhere)
    ]


def changes_in(jobs: Iterable[WaveJob], workers: Sequence[Worker], now: float) -> float:
    """Seconds until the next job becomes urgent; infinite where none will, or no worker takes urgent ones."""
    if not any(worker.urgent for worker in workers):
        return math.inf
    return min((seconds for job in jobs if (seconds := job.urgent_in(now)) > 0), default=math.inf)


def soonest(assigned: Assignment, now: float) -> tuple[float | None, Worker | None]:
    """The worker with jobs that may launch first, and in how many seconds; None, None without one.

    A worker with a batch of unknown length launches nothing until that has ended.
    """
    waits = [(worker.pace.delay(now), worker) for worker, jobs in assigned.items() if jobs]
    known = [(delay_s, worker) for delay_s, worker in waits if delay_s is not None]
    # The free worker for urgent chunks comes first: its launch is short, and a listener waits.
    return min(
        known,
        key=lambda each: (max(each[0], 0.0), not each[1].urgent, each[1].pace.busy, each[1].number),
        default=(None, None),
    )
