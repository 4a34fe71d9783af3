"""Whose tokens are computed next: pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cosyvoice_runtime.serving.token2wav.job import WaveJob

NEW_VOICE_DELAY_S = 0.5
"""How much later a new voice's first chunk is due: computing its prompt makes everybody else wait."""


class Share(NamedTuple):
    """What the next turn computes of a job: its next ``tokens`` tokens."""

    job: WaveJob
    tokens: int


def priority(job: WaveJob) -> float:
    """When a job is due, by the scheduler's clock; the earliest comes first."""
    return job.deadline + NEW_VOICE_DELAY_S if job.needs_voice else job.deadline


def plan_turn(jobs: Sequence[WaveJob], max_rows: int, budget_tokens: int, block_tokens: int) -> list[Share]:
    """The next turn: the most urgent job, and others as far as the budget goes.

    A turn can't be interrupted, so whoever comes meanwhile waits for its end. Long chunks are therefore cut
    into whole blocks of the flow; rows are padded to the longest, and count as long.

    Args:
        jobs: at most one of each utterance, not empty, most urgent first.
        budget_tokens: rows times the longest of them; the first job gets at least a block.
    """
    room = max(budget_tokens, block_tokens)
    longest = _cut(jobs[0].tokens_left, room, block_tokens)
    shares = [Share(jobs[0], longest)]
    for job in jobs[1:max_rows]:
        tokens = _cut(job.tokens_left, max(longest, block_tokens), block_tokens)
        if (len(shares) + 1) * max(longest, tokens) > room:
            break
        longest = max(longest, tokens)
        shares.append(Share(job, tokens))
    return shares


def _cut(tokens: int, most: int, block_tokens: int) -> int:
    """All of the tokens, or as many whole blocks of them as fit."""
    return tokens if tokens <= most else most // block_tokens * block_tokens


class TurnBudget:
    """How many tokens fit into a turn, learned from the turns before.

    It starts with one block and at most doubles with each turn that had room to spare: the first turns of a
    slow machine stay short, and a fast one soon takes everything at once.

    Args:
        limit_s: seconds a turn should last at most.
    """

    def __init__(self, limit_s: float, block_tokens: int) -> None:
        self._limit_s = limit_s
        self._block_tokens = block_tokens
        self.tokens = block_tokens

    def learn(self, tokens: int, seconds: float) -> None:
        """Note a turn of ``tokens`` tokens, padding included, that took ``seconds``."""
        fitting = int(tokens * self._limit_s / max(seconds, 1e-6))
        if seconds > self._limit_s:
            self.tokens = max(self._block_tokens, min(fitting, self.tokens))
        elif 2 * tokens >= self.tokens:
            self.tokens = max(self.tokens, min(fitting, 2 * self.tokens))
