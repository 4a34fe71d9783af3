"""What one turn computes: whose chunks, and how much of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from cosyvoice_runtime.engine.batches.chunk import WaveChunk
from cosyvoice_runtime.engine.batches.pace import TurnSize
from cosyvoice_runtime.engine.batches.service import Waveform, WaveOutcome, WaveOutcomes
from cosyvoice_runtime.engine.runtimes.runtime import HURRIED_BLOCKS

HURRY_S = 0.2
"""Two turns of a GPU with many listeners: who runs dry within it may not have what comes of the next one."""


@dataclass(eq=False)
class WaveJob:
    """A chunk on its way, which several turns may compute part by part.

    Attributes:
        deliver: takes the outcome, once.
        deadline: when the listener runs dry, by the scheduler's clock.
        number: utterances that were opened before its own, as far as that is known.
        needs_voice: the networks have to run over the prompt of its voice first.
        awaits_voice: another scheduler computes its voice; no turn may have it before that has ended.
        _launched, _parts: tokens that are launched, and in how many parts.
        _waves: samples of the parts that have ended.
    """

    chunk: WaveChunk
    deliver: Callable[[WaveOutcome], None]
    deadline: float
    number: int = 0
    needs_voice: bool = False
    awaits_voice: bool = False
    _launched: int = 0
    _parts: int = 0
    _waves: list[Waveform] = field(default_factory=list)

    @property
    def arrived(self) -> float:
        """When it came, by the scheduler's clock."""
        return self.deadline - self.chunk.cushion_s

    @property
    def begins(self) -> bool:
        """Whether its utterance is nobody's yet, unless it has been opened before."""
        return not (self.chunk.position or self.chunk.cancel or self.chunk.continues or self._parts)

    @property
    def tokens_left(self) -> int:
        """Speech tokens that are not launched."""
        return len(self.chunk.tokens) - self._launched

    def hurries(self, now: float, block_tokens: int) -> bool:
        """Whether its listener waits for it or soon will, its voice is known, and it is soon done.

        First chunks do, and second ones: what is heard of a first one is a tenth of a second. What is long is
        nobody's next second: somebody brings many tokens at once, or has waited long for all of them.
        """
        begins = not (self.chunk.position or self._parts)
        soon_done = begins or self.tokens_left <= HURRIED_BLOCKS * block_tokens
        return soon_done and not (self.chunk.cancel or self.needs_voice) and self.hurries_in(now) <= 0

    def hurries_in(self, now: float) -> float:
        """Seconds until it does, if it ever will."""
        return self.deadline - HURRY_S - now

    @property
    def waits(self) -> bool:
        """Whether a part of it is still to be launched; a chunk without tokens has one, too."""
        return not self._parts or self.tokens_left > 0

    def launch(self, tokens: int) -> WaveChunk:
        """The next ``tokens`` tokens as a chunk of their own: any cut gives the same audio."""
        start, end = self._launched, self._launched + tokens
        whole = self.chunk
        last = whole.last and end == len(whole.tokens)
        self._parts += 1  # first: an earlier part may end meanwhile, in another thread
        self._launched = end
        return dataclasses.replace(
            whole,
            tokens=whole.tokens[start:end],
            rest=() if start else whole.tokens[end:],
            position=whole.position + start,
            last=last,
        )

    def take(self, outcome: WaveOutcome) -> WaveOutcome | None:
        """Note what came of the next part; the whole chunk's outcome, or None while parts are left."""
        if isinstance(outcome, Exception):
            return outcome
        self._waves.append(outcome)
        return None if self.waits or len(self._waves) < self._parts else np.concatenate(self._waves)


class Share(NamedTuple):
    """What the next turn computes of a job: its next ``tokens`` tokens."""

    job: WaveJob
    tokens: int


@dataclass(frozen=True, eq=False)
class LaunchedTurn:
    """A turn under way.

    Attributes:
        outcomes: waits for them.
        of_new_voice: it computes a voice first, so it says nothing about how long turns are.
        held: the GPU, until the turn ends.
    """

    shares: Sequence[Share]
    outcomes: WaveOutcomes
    of_new_voice: bool
    held: ExitStack

    def names(self) -> list[str]:
        """Of the utterances."""
        return [share.job.chunk.utterance_id for share in self.shares]

    def size(self, unit_tokens: int) -> TurnSize | None:
        """None where turns of one size differ."""
        if self.of_new_voice:
            return None
        return TurnSize.of([share.tokens for share in self.shares], unit_tokens)

    @property
    def padded_tokens(self) -> int:
        """Tokens that the turn computes: each row is as long as the longest."""
        return len(self.shares) * max(share.tokens for share in self.shares)


def in_order(jobs: Iterable[WaveJob], soon: float) -> list[WaveJob]:
    """Those due soon by their deadlines, then the others as their utterances came.

    By deadlines alone, of those who are well supplied the shorter utterances would end first and the longer
    ones stay, each with its pages: simulated, 17 for each utterance of 64 instead of 7.

    Args:
        soon: whoever runs dry before, by the scheduler's clock.
    """
    return sorted(jobs, key=lambda job: (-1 if job.deadline < soon else job.number, job.deadline))


def plan_turn(jobs: Sequence[WaveJob], max_rows: int, budget_tokens: int, block_tokens: int) -> list[Share]:
    """The next turn: the most urgent job, and others as far as the budget goes.

    A turn can't be interrupted, so whoever comes meanwhile waits for its end. Long chunks are therefore cut
    into whole blocks of the flow; rows are padded to the longest, and count as long.

    Args:
        jobs: at most one of each utterance, not empty, most urgent first.
        budget_tokens: rows times the longest of them; the first job gets at least a block.
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


def cut(tokens: int, most: int, block_tokens: int) -> int:
    """All of the tokens, or as many whole blocks of them as fit."""
    return tokens if tokens <= most else most // block_tokens * block_tokens


class TurnBudget:
    """How many tokens fit into a turn, learned from the turns before.

    It starts with the least and at most doubles with each turn that had room to spare: the first turns of a
    slow machine stay short, and a fast one soon takes everything at once.

    Args:
        limit_s: seconds a turn should last at most.
        least_tokens: that a turn may always have.
    """

    def __init__(self, limit_s: float, least_tokens: int) -> None:
        self._limit_s = limit_s
        self._least_tokens = least_tokens
        self.tokens = least_tokens

    def learn(self, tokens: int, seconds: float) -> None:
        """Note a turn of ``tokens`` tokens, padding included, that took ``seconds``."""
        fitting = int(tokens * self._limit_s / max(seconds, 1e-6))
        if seconds > self._limit_s:
            self.tokens = max(self._least_tokens, min(fitting, self.tokens))
        elif 2 * tokens >= self.tokens:
            self.tokens = max(self.tokens, min(fitting, 2 * self.tokens))
