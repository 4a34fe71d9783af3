"""Plans of batches: whose chunks the next batch of each worker computes, and how much of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from cosyvoice_runtime.engine.batches.job import LaunchedBatch, Share, WaveJob
from cosyvoice_runtime.engine.batches.pages import PageAdmission
from cosyvoice_runtime.engine.batches.utterances import Speaker
from cosyvoice_runtime.engine.batches.worker import Assignment, Worker, assign, changes_in
from cosyvoice_runtime.engine.runtimes.runtime import URGENT_BLOCKS
from cosyvoice_runtime.gpu.buckets import finer_bucket
from cosyvoice_runtime.gpu.partitions.shared_gpu import SharedGpu

BLOCKS_OF_ROW = 2
"""Blocks of a GPU's batch for each of its rows. With 64 clients of an H200, lengths that are learned, up to
130 ms, make 337 s of speech a second and this 339."""

OVERHEAD_BLOCKS = 4
"""A GPU's batch takes as long as its blocks and this many more. On 100 multiprocessors of an H200 8 rows of
1, 2 and 4 blocks took 34, 54 and 82 ms, 16 rows of 1 and 2 took 49 and 85, which would be 8. But a batch is
the longer the more was spoken before, and well supplied listeners have long chunks: simulated, 2.5 to 5 make
the most speech."""

LEAST_MISSED_S = 0.3
"""If a listener's audio runs out within this time, or within two batches, the chunk is in the next one,
because the one after ends too late. Including all who have a second left would fill batches of several blocks
with rows of one."""

LOOK_S = 0.1
"""Time after which jobs that wait for pages are looked at again: another scheduler's utterances may have
ended."""


class BatchPlanner:
    """Plans the batches of a scheduler's workers.

    Args:
        workers: workers by their numbers.
        gpu: how the device is shared.
        on_gpu: whether many short rows cost little more than a few.
        unit_tokens: a chunk may be cut at multiples of it.
        batch_s: seconds that a batch of a CPU should last at most, because chunks that come meanwhile wait.
        pages: decides which utterances begin and go on; None where there are pages for all.
        speakers: utterances in progress, the earliest first.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        gpu: SharedGpu,
        on_gpu: bool,
        unit_tokens: int,
        batch_s: float,
        pages: PageAdmission | None = None,
        speakers: Callable[[], Sequence[Speaker]] = tuple,
    ) -> None:
        self._workers, self._gpu, self._on_gpu, self._pages = workers, gpu, on_gpu, pages
        self._unit_tokens, self._speakers = unit_tokens, speakers
        self._budget = TokenBudget(batch_s, unit_tokens)
        self._took_s = 0.0

    def assign(
        self, jobs: Sequence[WaveJob], new: Collection[WaveJob], speaking: int, now: float, ends: bool = False
    ) -> tuple[Assignment, float]:
        """Assign jobs to workers, for so many seconds if nothing happens.

        Args:
            jobs: at most one of each utterance.
            new: the jobs that would begin one.
            speaking: number of utterances in progress.
            now: time by the scheduler's clock.
            ends: whether no job waits for pages any more.
        """
        held = self._without_pages(jobs, new, now, ends)
        able = [job for job in jobs if job not in held]
        assigned = assign(able, self._workers, now, self._unit_tokens, self._gpu.few(speaking))
        again_s = LOOK_S if held else math.inf
        return assigned, min(changes_in(able, self._workers, now), again_s)

    def in_order(self, jobs: Iterable[WaveJob], now: float) -> list[WaveJob]:
        """Sort jobs by urgency as :func:`in_order` does; on a CPU all are due soon."""
        return in_order(jobs, now + (self._pages.soon_s() if self._pages and self._on_gpu else math.inf))

    def shares(self, worker: Worker, jobs: Sequence[WaveJob], now: float) -> list[Share]:
        """Plan a worker's next batch of jobs in order; worker 0 computes a new voice in a batch of its
        own."""
        if jobs and jobs[0].needs_voice and not worker.number:
            return self._plan(worker, jobs[:1], now)
        known = [job for job in jobs if not job.needs_voice]
        return self._plan(worker, known, now) if known else []

    def learn(self, worker: Worker, batch: LaunchedBatch, took_s: float) -> None:
        """Note how long a batch took."""
        if not (worker.urgent or batch.of_new_voice):
            self._budget.learn(batch.padded_tokens, took_s)
            self._took_s = took_s

    def _without_pages(
        self, jobs: Sequence[WaveJob], new: Collection[WaveJob], now: float, ends: bool
    ) -> Collection[WaveJob]:
        """Jobs that wait for pages."""
        if self._pages is None:
            return ()
        held = self._pages.held(() if ends else new, now)
        if self._on_gpu and not ends:
            idle = not any(worker.pace.busy for worker in self._workers)
            held |= self._pages.saving(jobs, self._speakers, self._unit_tokens, now, idle)
        return held

    def _plan(self, worker: Worker, jobs: Sequence[WaveJob], now: float) -> list[Share]:
        if worker.urgent:
            return plan_urgent_batch(jobs, worker.rows, self._unit_tokens)
        if not self._on_gpu:
            return plan_batch(jobs, worker.rows, self._budget.tokens, self._unit_tokens)
        most = BLOCKS_OF_ROW * worker.rows
        return plan_gpu_batch(jobs, worker.rows, most, self._unit_tokens, now, self._took_s)


def in_order(jobs: Iterable[WaveJob], soon: float) -> list[WaveJob]:
    """Sort jobs by urgency: those due before ``soon`` by their deadlines, then the others as they came.

    By deadlines alone, of well supplied utterances the shorter ones would end first and the longer ones stay,
    each with its pages: simulated, 17 for each utterance of 64 instead of 7.
    """
    return sorted(jobs, key=lambda job: (-1 if job.deadline < soon else job.number, job.deadline))


def plan_batch(jobs: Sequence[WaveJob], max_rows: int, budget_tokens: int, block_tokens: int) -> list[Share]:
    """Plan a batch of a CPU: the most urgent job, and others as far as the budget goes.

    A batch can't be interrupted, so chunks that come meanwhile wait for its end. Long chunks are therefore
    cut into whole blocks of the flow; rows are padded to the longest, and count as long.

    Args:
        jobs: at most one of each utterance, not empty, most urgent first.
        budget_tokens: most tokens, rows times the longest of them; the first job gets at least a block.
    """
    room = max(budget_tokens, block_tokens)
    longest = cut(jobs[0].tokens_left, room, block_tokens)
    shares = [Share(jobs[0], longest)]
    for job in jobs[1:max_rows]:
        tokens = cut(job.tokens_left, max(longest, block_tokens), block_tokens)
        if (len(shares) + 1) * max(longest, tokens) > room:
            break
        longest = max(longest, tokens)
        shares.append(Share(job, tokens))
    return shares


def plan_urgent_batch(jobs: Sequence[WaveJob], max_rows: int, block_tokens: int) -> list[Share]:
    """Plan a batch of chunks whose listeners wait; each first chunk gets all that it needs to be heard.

    Args:
        jobs: at most one of each utterance, most urgent first.
    """
    most = URGENT_BLOCKS * block_tokens
    return [Share(job, cut(job.tokens_left, most, block_tokens)) for job in jobs[:max_rows]]


def plan_gpu_batch(
    jobs: Sequence[WaveJob],
    max_rows: int,
    most_blocks: int,
    block_tokens: int,
    now: float,
    batch_s: float = 0.0,
) -> list[Share]:
    """Plan a batch of a GPU, where many short rows cost little more than a few, and one long row as much.

    All jobs get the same number of blocks, 1, 2, 4 and so on, since calls between those are computed as
    larger ones: the number that makes the most speech for the time.

    Args:
        jobs: at most one of each utterance, not empty, most urgent first.
        most_blocks: most blocks of all rows together.
        now: time by the scheduler's clock.
        batch_s: seconds that the last batch took.
    """
    due = now + max(LEAST_MISSED_S, 2 * batch_s)
    longest = max(job.blocks_left(block_tokens) for job in jobs)
    sizes = [1 << power for power in range(min(most_blocks.bit_length(), (longest - 1).bit_length() + 1))]
    plans = [
        _EqualRows(
            _filling(jobs, blocks, block_tokens, due)[: min(max_rows, max(most_blocks // blocks, 1))], blocks
        )
        for blocks in sizes
    ]
    best = max(plans, key=lambda plan: plan.speech(block_tokens))
    return [Share(job, cut(job.tokens_left, best.blocks * block_tokens, block_tokens)) for job in best.jobs]


class _EqualRows(NamedTuple):
    """A batch in which every job has ``blocks``, or the fewer that it has left."""

    jobs: Sequence[WaveJob]
    blocks: int

    def speech(self, block_tokens: int) -> float:
        """Blocks of speech for the time of the batch, in which a row with fewer blocks takes as long."""
        filled = sum(min(job.blocks_left(block_tokens), self.blocks) for job in self.jobs)
        return filled / (OVERHEAD_BLOCKS + finer_bucket(len(self.jobs)) * self.blocks)


def _filling(jobs: Sequence[WaveJob], blocks: int, block_tokens: int, due: float) -> list[WaveJob]:
    """The most urgent job, then those that must not miss the batch, and those whose length suits it.

    The end of an utterance always suits: its listener waits for it, and its pages are free then.
    """

    def rank(job: WaveJob) -> int:
        if job.deadline <= due:
            return 0
        left = job.blocks_left(block_tokens)
        if left < blocks:
            return 1 if job.chunk.last else 2
        return 1 if left == blocks or blocks > 1 else 2  # One block of many suits a larger number.

    return [jobs[0], *sorted(jobs[1:], key=rank)]


def cut(tokens: int, most: int, block_tokens: int) -> int:
    """All of the tokens, or as many whole blocks of them as fit."""
    return tokens if tokens <= most else most // block_tokens * block_tokens


class TokenBudget:
    """How many tokens fit into a batch of a CPU, learned from the batches before.

    It starts with the least and at most doubles after each batch with room to spare: the first batches of a
    slow machine stay short, and a fast machine soon computes everything at once.

    Args:
        limit_s: seconds that a batch should last at most.
        least_tokens: tokens that a batch may always have.
    """

    def __init__(self, limit_s: float, least_tokens: int) -> None:
        self._limit_s = limit_s
        self._least_tokens = least_tokens
        self.tokens = least_tokens

    def learn(self, tokens: int, seconds: float) -> None:
        """Note a batch of ``tokens`` tokens, padding included, that took ``seconds``."""
        fitting = int(tokens * self._limit_s / max(seconds, 1e-6))
        if seconds > self._limit_s:
            self.tokens = max(self._least_tokens, min(fitting, self.tokens))
        elif 2 * tokens >= self.tokens:
            self.tokens = max(self.tokens, min(fitting, 2 * self.tokens))
