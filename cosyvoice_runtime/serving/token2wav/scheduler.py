"""The order in which chunks are computed: earliest deadline first, on one device or several."""

from __future__ import annotations

import copy
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import torch

from cosyvoice_runtime.cuda_errors import end_process, is_fatal
from cosyvoice_runtime.errors import CosyVoiceError, OverloadedError, WithdrawnError
from cosyvoice_runtime.metrics import moments
from cosyvoice_runtime.serving.gpu_shifts import GpuShifts
from cosyvoice_runtime.serving.token2wav.chunk import WaveChunk
from cosyvoice_runtime.serving.token2wav.device import on_own_stream
from cosyvoice_runtime.serving.token2wav.service import Waveform, WaveOutcome, WaveService

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class WaveJob:
    """
    Attributes:
        deliver: takes the outcome, once.
        deadline: when the listener runs dry, by the scheduler's clock.
        needs_voice: the networks have to run over the prompt of its voice first.
    """

    chunk: WaveChunk
    deliver: Callable[[WaveOutcome], None]
    deadline: float
    needs_voice: bool = False
    _done: int = 0
    _waves: list[Waveform] = field(default_factory=list)

    @property
    def tokens_left(self) -> int:
        return len(self.chunk.tokens) - self._done

    def part(self, tokens: int) -> WaveChunk:
        """The next ``tokens`` tokens as a chunk of their own: any cut gives the same audio."""
        start, end = self._done, self._done + tokens
        whole = self.chunk
        last = whole.last and end == len(whole.tokens)
        return dataclasses.replace(
            whole,
            tokens=whole.tokens[start:end],
            rest=() if start else whole.tokens[end:],
            position=whole.position + start,
            last=last,
        )

    def take(self, tokens: int, outcome: WaveOutcome) -> WaveOutcome | None:
        """Note what came of the last part; the whole chunk's outcome, or None while parts are left."""
        if isinstance(outcome, Exception):
            return outcome
        self._done += tokens
        self._waves.append(outcome)
        return None if self.tokens_left else np.concatenate(self._waves)


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
    """The next turn: as many of the most urgent jobs as the budget has blocks, and equal parts of it for all.

    A turn can't be interrupted, so whoever comes meanwhile waits for its end. Long chunks are therefore cut
    into whole blocks of the flow, and none is longer than the most urgent one. Many short rows cost little
    more than a few: so many jobs get a block each, and a few get several.

    Args:
        jobs: at most one of each utterance, not empty, most urgent first.
        budget_tokens: rows times the longest of them; the first job gets at least a block.
    """
    blocks = max(budget_tokens // block_tokens, 1)
    rows = min(len(jobs), max_rows, blocks)
    first = _cut(jobs[0].tokens_left, blocks // rows * block_tokens, block_tokens)
    most = max(first, block_tokens)
    return [Share(job, _cut(job.tokens_left, most, block_tokens)) for job in jobs[:rows]]


def _cut(tokens: int, most: int, block_tokens: int) -> int:
    """All of the tokens, or as many whole blocks of them as fit."""
    return tokens if tokens <= most else most // block_tokens * block_tokens


class TurnBudget:
    """How many tokens fit into a turn, learned from the turns before.

    It starts with the least and at most doubles with each turn that had room to spare: the first turns of a
    slow machine stay short, and a fast one soon takes everything at once.

    Args:
        limit_s: seconds a turn should last at most.
        least_tokens: that a turn may always have, for a device that computes them in little more time than
            fewer.
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


CPU = torch.device("cpu")
GPU_BLOCKS = 8
"""Blocks of a turn that a GPU computes in about twice the time of one."""


class WaveScheduler:
    """A thread that runs the chunks of a :class:`WaveService` in turns, by the listeners' deadlines.

    Chunks of one utterance are computed in the order they came; a cancel withdraws those that came before
    it. Every chunk that was taken gets an outcome, whatever goes wrong; if the GPU is lost, all get an error
    and the process ends.

    Args:
        max_rows: utterances in a turn.
        max_waiting: chunks that may wait.
        turn_s: seconds that a turn should last at most; whoever comes meanwhile waits for its end.
        on_waiting: told the number of chunks that wait, whenever it has changed.
        on_turn: told the seconds that a turn took.
        device: of the networks; the thread works on no other.
        shifts: of a GPU that the speech LM computes on in this process.
        clock: monotonic seconds.
        end_process: told why this process can't go on.
    """

    def __init__(
        self,
        service: WaveService,
        max_rows: int,
        max_waiting: int,
        turn_s: float,
        block_tokens: int,
        on_waiting: Callable[[int], None] = lambda _: None,
        on_turn: Callable[[float], None] = lambda _: None,
        device: torch.device = CPU,
        shifts: GpuShifts | None = None,
        clock: Callable[[], float] = time.monotonic,
        end_process: Callable[[str], None] = end_process,
    ) -> None:
        self._service = service
        self._max_rows = max_rows
        self._max_waiting = max_waiting
        self._block_tokens = block_tokens
        self._budget = TurnBudget(turn_s, block_tokens * (GPU_BLOCKS if device.type == "cuda" else 1))
        self._on_waiting = on_waiting
        self._on_turn = on_turn
        self._device = device
        self._shifts = shifts or GpuShifts()
        self._clock = clock
        self._end_process = end_process
        self._jobs: list[WaveJob] = []
        self._wake = threading.Condition()
        self._closed = False
        self._refusal: CosyVoiceError | None = None
        self._thread = threading.Thread(target=self._run, name="token2wav")
        self._thread.start()

    def submit(self, chunk: WaveChunk, deliver: Callable[[WaveOutcome], None]) -> None:
        """Queue a chunk; ``deliver`` is called with its outcome from the scheduler's thread.

        A cancel ends the utterance's waiting chunks before it returns, from the calling thread.

        Raises:
            InvalidInput: the chunk says something impossible.
            OverloadedError: too many wait.
            CosyVoiceError: the GPU is lost.
        """
        moments.note("token2wav has the chunk")
        chunk.check()
        if chunk.cancel:
            self._withdraw(chunk.utterance_id)
        with self._wake:
            if self._refusal is not None:
                raise copy.copy(self._refusal)
            if len(self._jobs) >= self._max_waiting and not chunk.cancel:
                raise OverloadedError(f"{len(self._jobs)} chunks wait, the limit; try again later")
            self._jobs.append(WaveJob(chunk, deliver, self._clock() + chunk.cushion_s))
            self._tell_waiting()
            self._wake.notify()

    @property
    def load(self) -> int:
        """Utterances in progress and chunks that wait."""
        return len(self._service) + len(self._jobs)

    def holds(self, utterance_id: str) -> bool:
        """Whether chunks of this utterance wait here or it is in progress. Does not wait for a turn."""
        # In this order: a chunk's job goes only after its utterance is open.
        with self._wake:
            if any(job.chunk.utterance_id == utterance_id for job in self._jobs):
                return True
        return utterance_id in self._service

    def close(self) -> None:
        """Compute what waits, then stop and free everything."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()
        self._service.close()

    def _withdraw(self, utterance_id: str) -> None:
        """End an utterance's chunks; of one that is being computed, the turn under way is the last."""
        with self._wake:
            waiting = [job for job in self._jobs if job.chunk.utterance_id == utterance_id]
        self._end_all(waiting, WithdrawnError("the utterance was cancelled before this was computed"))

    def _run(self) -> None:
        try:
            with on_own_stream(self._device):
                while jobs := self._wait():
                    self._serve(jobs)
        except BaseException as error:
            self._give_up(error)

    def _wait(self) -> list[WaveJob]:
        """The first job of each utterance; none at the end."""
        with self._wake:
            self._wake.wait_for(lambda: self._jobs or self._closed)
            first: dict[str, WaveJob] = {}
            for job in self._jobs:
                first.setdefault(job.chunk.utterance_id, job)
        return list(first.values())

    def _serve(self, jobs: list[WaveJob]) -> None:
        """One turn. An error that belongs to no single chunk is the outcome of all that were looked at."""
        try:
            self._service.touch(job.chunk.utterance_id for job in jobs)
            self._forget([job for job in jobs if job.chunk.cancel])
            self._compute(self._with_voices(job for job in jobs if not job.chunk.cancel))
        except Exception as error:
            if is_fatal(error):
                raise
            logger.exception("a turn of token2wav failed")
            self._end_all(jobs, error)

    def _forget(self, cancels: list[WaveJob]) -> None:
        """Cancels, which are no part of a turn: there is nothing to compute."""
        outcomes = self._service.run([job.chunk for job in cancels]) if cancels else []
        for job, outcome in zip(cancels, outcomes, strict=True):
            self._end(job, outcome)

    def _with_voices(self, jobs: Iterable[WaveJob]) -> list[WaveJob]:
        """These jobs, most urgent first, once it is known who needs a voice; one that can't be asked ends."""
        known = []
        for job in jobs:
            try:
                job.needs_voice = self._service.computes_voice(job.chunk)
            except Exception as error:
                self._end(job, error)
            else:
                known.append(job)
        return sorted(known, key=priority)

    def _compute(self, jobs: list[WaveJob]) -> None:
        """A new voice is computed in a turn of its own, which says nothing about how long turns are."""
        if not jobs:
            return
        if jobs[0].needs_voice:
            self._take_turn(self._plan(jobs[:1]))
            return
        shares = self._plan([job for job in jobs if not job.needs_voice])
        started = self._clock()
        self._take_turn(shares)
        padded = len(shares) * max(share.tokens for share in shares)
        self._budget.learn(padded, self._clock() - started)

    def _plan(self, jobs: list[WaveJob]) -> list[Share]:
        return plan_turn(jobs, self._max_rows, self._budget.tokens, self._block_tokens)

    def _take_turn(self, shares: list[Share]) -> None:
        moments.note("a turn begins")
        with self._shifts.turn():
            started = self._clock()
            outcomes = self._service.run([share.job.part(share.tokens) for share in shares])
            took_s = self._clock() - started
        moments.note("a turn ends")
        for outcome in outcomes:
            if isinstance(outcome, Exception) and is_fatal(outcome):
                raise outcome
        for share, outcome in zip(shares, outcomes, strict=True):
            whole = share.job.take(share.tokens, outcome)
            if whole is not None:
                self._end(share.job, whole)
        self._on_turn(took_s)

    def _end(self, job: WaveJob, outcome: WaveOutcome) -> None:
        with self._wake:
            if job not in self._jobs:
                return
            self._jobs.remove(job)
            self._tell_waiting()
        try:
            job.deliver(outcome)
        except Exception:
            logger.exception("an outcome of utterance %s could not be delivered", job.chunk.utterance_id)

    def _end_all(self, jobs: Iterable[WaveJob], error: Exception) -> None:
        for job in jobs:
            self._end(job, error)

    def _give_up(self, error: BaseException) -> None:
        """Answer everybody, then end the process: nothing can be computed here any more."""
        logger.critical("token2wav can't go on", exc_info=error)
        reason = f"token2wav can't go on ({type(error).__name__}); its process is started anew"
        with self._wake:
            self._refusal = CosyVoiceError(reason)
            waiting = list(self._jobs)
        self._end_all(waiting, self._refusal)
        self._end_process(reason)

    def _tell_waiting(self) -> None:
        try:
            self._on_waiting(len(self._jobs))
        except Exception:
            logger.exception("the number of waiting chunks could not be told")


class WaveRouter:
    """Passes the chunks of an utterance to one scheduler: the least loaded when its first chunk comes.

    Nothing is kept here: the schedulers know which utterances are theirs, so none can be lost or left over.

    Args:
        schedulers: one for each device, at least one.
    """

    def __init__(self, schedulers: Sequence[WaveScheduler]) -> None:
        self._schedulers = schedulers
        self._choosing = threading.Lock()

    def submit(self, chunk: WaveChunk, deliver: Callable[[WaveOutcome], None]) -> None:
        """See `WaveScheduler.submit`."""
        with self._choosing:  # two threads must not find two homes for one utterance
            self._home(chunk.utterance_id).submit(chunk, deliver)

    def close(self) -> None:
        """Compute what waits, then stop and free everything."""
        for scheduler in self._schedulers:
            scheduler.close()

    def _home(self, utterance_id: str) -> WaveScheduler:
        for scheduler in self._schedulers:
            if scheduler.holds(utterance_id):
                return scheduler
        return min(self._schedulers, key=attrgetter("load"))
