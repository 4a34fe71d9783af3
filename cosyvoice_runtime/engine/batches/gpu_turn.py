"""What one turn of a GPU computes: many short rows cost little more than few, a long one as much as all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cosyvoice_runtime.engine.batches.turn import Share, WaveJob, cut
from cosyvoice_runtime.engine.runtimes.runtime import HURRIED_BLOCKS
from cosyvoice_runtime.gpu.buckets import finer_bucket

BESIDE_BLOCKS = 4
"""What a GPU's turn takes beside its blocks, in blocks. On 100 multiprocessors of an H200 8 rows of 1 / 2 / 4
blocks took 34 / 54 / 82 ms, 16 rows of 1 / 2 took 49 / 85, which would be 8. But a turn is the longer the
more was spoken before, and who is well supplied has long parts: simulated, 2.5 to 5 make the most speech."""

LEAST_MISSED_S = 0.3
"""Whose listener runs dry within it, or within two turns, should not miss the next turn: the one after ends
too late. To take along all who have a second left fills parts of several blocks with rows of one."""


def plan_hurried_turn(jobs: Sequence[WaveJob], max_rows: int, block_tokens: int) -> list[Share]:
    """Chunks that somebody waits for side by side, each first one with all that it needs to be heard.

    Args:
        jobs: at most one of each utterance, most urgent first.
    """
    return [
        Share(job, cut(job.tokens_left, HURRIED_BLOCKS * block_tokens, block_tokens))
        for job in jobs[:max_rows]
    ]


class _EqualParts(NamedTuple):
    """A turn of which every job has ``blocks``, if it has as many left."""

    jobs: Sequence[WaveJob]
    blocks: int

    def speech(self, block_tokens: int) -> float:
        """Of a turn, for the time that it takes: a row that has less takes as long."""
        filled = sum(min(_blocks_left(job, block_tokens), self.blocks) for job in self.jobs)
        return filled / (BESIDE_BLOCKS + finer_bucket(len(self.jobs)) * self.blocks)


def plan_turn_of_gpu(
    jobs: Sequence[WaveJob],
    max_rows: int,
    most_blocks: int,
    block_tokens: int,
    now: float,
    turn_s: float = 0.0,
) -> list[Share]:
    """As :func:`plan_turn`, where many short rows cost little more than a few, and a long one goes on alone.

    All get equal parts, of 1, 2 or 4 blocks and so on, since calls between those are computed as larger ones:
    of as many as make the most speech for the time.

    Args:
        jobs: at most one of each utterance, not empty, most urgent first.
        most_blocks: of all rows together.
        now: by the scheduler's clock.
        turn_s: seconds that the last one took.
    """
    due = now + max(LEAST_MISSED_S, 2 * turn_s)
    longest = max(_blocks_left(job, block_tokens) for job in jobs)
    sizes = [1 << power for power in range(min(most_blocks.bit_length(), (longest - 1).bit_length() + 1))]
    turns = [
        _EqualParts(
            _filling(jobs, blocks, block_tokens, due)[: min(max_rows, max(most_blocks // blocks, 1))], blocks
        )
        for blocks in sizes
    ]
    best = max(turns, key=lambda turn: turn.speech(block_tokens))
    return [Share(job, cut(job.tokens_left, best.blocks * block_tokens, block_tokens)) for job in best.jobs]


def _filling(jobs: Sequence[WaveJob], blocks: int, block_tokens: int, due: float) -> list[WaveJob]:
    """The most urgent one, those that should not miss the turn, and then those that such parts suit.

    The end of an utterance always does: somebody waits for that, and its pages are free then.
    """

    def rank(job: WaveJob) -> int:
        if job.deadline <= due:
            return 0
        left = _blocks_left(job, block_tokens)
        ends = job.chunk.last and left <= blocks
        return 1 if ends or left == blocks or left > blocks > 1 else 2  # one block of many suits larger turns

    return [jobs[0], *sorted(jobs[1:], key=rank)]


def _blocks_left(job: WaveJob, block_tokens: int) -> int:
    return max(-(-job.tokens_left // block_tokens), 1)
