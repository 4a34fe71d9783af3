"""Jobs: chunks that wait for batches, or are computed in them piece by piece, until they have an outcome."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from cosyvoice_runtime.engine.batches.chunk import WaveChunk, Waveform, WaveOutcome, WaveOutcomes
from cosyvoice_runtime.engine.runtimes.runtime import URGENT_BLOCKS
from cosyvoice_runtime.errors import OverloadedError
from cosyvoice_runtime.gpu.buckets import finer_bucket

URGENT_S = 0.2
"""Two batches of a GPU with many listeners: if a listener's audio runs out within this time, the batch after
the next one is too late."""


@dataclass(eq=False)
class WaveJob:
    """A chunk that several batches may compute piece by piece.

    Attributes:
        deliver: takes the outcome, once.
        deadline: time at which the listener's audio runs out, by the scheduler's clock.
        number: number of utterances that were opened before its own, as far as that is known.
        needs_voice: whether the networks have to run over the prompt of its voice first.
        awaits_voice: whether another scheduler computes its voice; until that ends no batch may have it.
        _launched, _pieces: tokens that are launched, and in how many pieces.
        _waves: samples of the pieces that have ended.
    """

    chunk: WaveChunk
    deliver: Callable[[WaveOutcome], None]
    deadline: float
    number: int = 0
    needs_voice: bool = False
    awaits_voice: bool = False
    _launched: int = 0
    _pieces: int = 0
    _waves: list[Waveform] = field(default_factory=list)

    @property
    def utterance_id(self) -> str:
        return self.chunk.utterance_id

    @property
    def arrived(self) -> float:
        """Time at which it came, by the scheduler's clock."""
        return self.deadline - self.chunk.cushion_s

    @property
    def begins(self) -> bool:
        """Whether it opens an utterance that is not open yet."""
        return not (self.chunk.position or self.chunk.cancel or self.chunk.continues or self._pieces)

    @property
    def tokens_left(self) -> int:
        """Speech tokens that are not launched."""
        return len(self.chunk.tokens) - self._launched

    def blocks_left(self, block_tokens: int) -> int:
        """Blocks that its tokens which are not launched fill, at least one."""
        return max(-(-self.tokens_left // block_tokens), 1)

    def is_urgent(self, now: float, block_tokens: int) -> bool:
        """Whether its listener waits for it or soon will, its voice is known, and it is short.

        First and second chunks are short, and of a first one a tenth of a second is heard. A long chunk is
        not urgent: its text came at once, or its listener has waited long for all of it.
        """
        begins = not (self.chunk.position or self._pieces)
        soon_done = begins or self.tokens_left <= URGENT_BLOCKS * block_tokens
        return soon_done and not (self.chunk.cancel or self.needs_voice) and self.urgent_in(now) <= 0

    def urgent_in(self, now: float) -> float:
        """Seconds until it is urgent, if it ever will."""
        return self.deadline - URGENT_S - now

    @property
    def waits(self) -> bool:
        """Whether a piece of it is still to be launched; a chunk without tokens is one piece."""
        return not self._pieces or self.tokens_left > 0

    def launch(self, tokens: int) -> WaveChunk:
        """Return the next ``tokens`` tokens as a chunk of their own: any cut gives the same audio."""
        start, end = self._launched, self._launched + tokens
        whole = self.chunk
        self._pieces += 1  # Counted first: an earlier piece may end meanwhile.
        self._launched = end
        return dataclasses.replace(
            whole,
            tokens=whole.tokens[start:end],
            rest=() if start else whole.tokens[end:],
            position=whole.position + start,
            last=whole.last and end == len(whole.tokens),
        )

    def take(self, outcome: WaveOutcome) -> WaveOutcome | None:
        """Note the outcome of the next piece; returns that of the whole chunk after the last piece, else
        None."""
        if isinstance(outcome, Exception):
            return outcome
        self._waves.append(outcome)
        return None if self.waits or len(self._waves) < self._pieces else np.concatenate(self._waves)


class Share(NamedTuple):
    """The next ``tokens`` tokens of a job, which a batch computes."""

    job: WaveJob
    tokens: int


class BatchSize(NamedTuple):
    """The size of a batch. Batches of one size take about as long, because they are the same captured call.

    Attributes:
        rows: utterances, rounded up to the size of a captured call.
        units: length of the longest row, in the units at which chunks may be cut.
    """

    rows: int
    units: int


@dataclass(frozen=True, eq=False)
class LaunchedBatch:
    """A batch that is being computed.

    Attributes:
        outcomes: waits for the outcomes.
        of_new_voice: whether it computes a voice first, so that its time is not that of other batches.
        held: the lease of the GPU until the batch ends.
    """

    shares: Sequence[Share]
    outcomes: WaveOutcomes
    of_new_voice: bool
    held: ExitStack

    def names(self) -> list[str]:
        """Ids of its utterances."""
        return [share.job.utterance_id for share in self.shares]

    def size(self, unit_tokens: int) -> BatchSize | None:
        """Its size; None if it computes a new voice, so that its time is not that of its size."""
        if self.of_new_voice:
            return None
        return BatchSize(finer_bucket(len(self.shares)), -(-self._longest // unit_tokens))

    @property
    def padded_tokens(self) -> int:
        """Tokens that the batch computes: each row is as long as the longest."""
        return len(self.shares) * self._longest

    @property
    def _longest(self) -> int:
        return max(share.tokens for share in self.shares)


class WaitingJobs:
    """The jobs that have no outcome yet, in the order they came; callers hold the owner's lock.

    Args:
        most: most jobs that may wait to begin an utterance, and as many of utterances in progress.
        begins: whether a job would begin an utterance.
        on_change: called with their number whenever that has changed.
    """

    def __init__(
        self, most: int, begins: Callable[[WaveJob], bool], on_change: Callable[[int], None]
    ) -> None:
        self._most, self._begins, self._on_change = most, begins, on_change
        self._jobs: list[WaveJob] = []

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[WaveJob]:
        return iter(self._jobs)

    def add(self, job: WaveJob) -> None:
        """Add a job. Jobs that begin an utterance leave room for those of utterances in progress.

        Raises:
            OverloadedError: too many wait, unless the job is a cancel.
        """
        if len(self._jobs) >= self._most and not job.chunk.cancel:
            begins = self._begins(job)
            alike = sum(self._begins(other) == begins for other in self._jobs)
            if alike >= self._most:
                raise OverloadedError(f"{alike} chunks wait, the limit; try again later")
        self._jobs.append(job)
        self._on_change(len(self._jobs))

    def remove(self, job: WaveJob) -> bool:
        """Remove a job, and return whether it was there."""
        if job not in self._jobs:
            return False
        self._jobs.remove(job)
        self._on_change(len(self._jobs))
        return True

    def of(self, utterance_id: str) -> list[WaveJob]:
        """The jobs of one utterance."""
        return [job for job in self._jobs if job.utterance_id == utterance_id]

    def utterances(self) -> set[str]:
        """The ids of all utterances that have jobs here."""
        return {job.utterance_id for job in self._jobs}

    def first_of_each(self) -> list[WaveJob]:
        """The first job of each utterance that is not all launched."""
        first: dict[str, WaveJob] = {}
        for job in self._jobs:
            if job.waits:
                first.setdefault(job.utterance_id, job)
        return list(first.values())
