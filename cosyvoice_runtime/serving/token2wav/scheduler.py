"""The order in which chunks are computed: whoever runs dry first comes first."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import torch

from cosyvoice_runtime.errors import InvalidInput, OverloadedError
from cosyvoice_runtime.serving.token2wav.chunk import WaveChunk
from cosyvoice_runtime.serving.token2wav.device import as_current
from cosyvoice_runtime.serving.token2wav.job import WaveJob
from cosyvoice_runtime.serving.token2wav.service import Outcome, WaveService
from cosyvoice_runtime.serving.token2wav.turn import Share, TurnBudget, plan_turn

logger = logging.getLogger(__name__)

CPU = torch.device("cpu")
MAX_CUSHION_S = 3600.0
NEW_VOICE_DELAY_S = 0.5
"""How much later a new voice's first chunk is due: computing its prompt makes everybody else wait."""


class WaveScheduler:
    """A thread that runs the chunks of a :class:`WaveService` in turns, by the listeners' deadlines.

    Chunks of one utterance are computed in the order they came.

    Args:
        max_rows: utterances in a turn.
        max_waiting: chunks that may wait.
        turn_s: seconds that a turn should last at most; whoever comes meanwhile waits for its end.
        on_waiting: told the number of chunks that wait, whenever it has changed.
        device: of the networks; the thread works on no other.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        service: WaveService,
        max_rows: int,
        max_waiting: int,
        turn_s: float,
        block_tokens: int,
        on_waiting: Callable[[int], None] = lambda _: None,
        device: torch.device = CPU,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._service = service
        self._max_rows = max_rows
        self._max_waiting = max_waiting
        self._block_tokens = block_tokens
        self._budget = TurnBudget(turn_s, block_tokens)
        self._on_waiting = on_waiting
        self._device = device
        self._clock = clock
        self._jobs: list[WaveJob] = []
        self._wake = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="token2wav")
        self._thread.start()

    def submit(self, chunk: WaveChunk, deliver: Callable[[Outcome], None]) -> None:
        """Queue a chunk; ``deliver`` is called with its outcome from the scheduler's thread.

        Raises:
            InvalidInput: the cushion is out of range.
            OverloadedError: too many wait.
        """
        if not 0 <= chunk.cushion_s <= MAX_CUSHION_S:
            raise InvalidInput("cushion", chunk.cushion_s, f"0 to {MAX_CUSHION_S:g} s")
        with self._wake:
            if len(self._jobs) >= self._max_waiting and not chunk.cancel:
                raise OverloadedError(f"{len(self._jobs)} chunks wait, the limit; try again later")
            self._jobs.append(WaveJob(chunk, deliver, self._clock() + chunk.cushion_s))
            self._on_waiting(len(self._jobs))
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

    def _run(self) -> None:
        with as_current(self._device):
            while (jobs := self._wait()) is not None:
                self._compute(jobs)

    def _compute(self, jobs: list[WaveJob]) -> None:
        """One turn."""
        voices = {id(job) for job in jobs if self._service.computes_voice(job.chunk)}
        jobs.sort(key=lambda job: job.deadline + NEW_VOICE_DELAY_S * (id(job) in voices))
        if id(jobs[0]) in voices:
            self._take_turn(plan_turn(jobs[:1], 1, self._budget.tokens, self._block_tokens))
            return
        known = [job for job in jobs if id(job) not in voices]
        shares = plan_turn(known, self._max_rows, self._budget.tokens, self._block_tokens)
        started = self._clock()
        self._take_turn(shares)
        padded = len(shares) * max(share.tokens for share in shares)
        self._budget.learn(padded, self._clock() - started)

    def _wait(self) -> list[WaveJob] | None:
        """The first job of each utterance; None at the end."""
        with self._wake:
            self._wake.wait_for(lambda: self._jobs or self._closed)
            first: dict[str, WaveJob] = {}
            for job in self._jobs:
                first.setdefault(job.chunk.utterance_id, job)
            self._service.touch(first)
        return list(first.values()) or None

    def _take_turn(self, shares: list[Share]) -> None:
        try:
            outcomes = self._service.run([share.job.part(share.tokens) for share in shares])
        except Exception as error:
            logger.exception("a turn of token2wav failed")
            outcomes = [error for _ in shares]
        for share, outcome in zip(shares, outcomes, strict=True):
            whole = share.job.take(share.tokens, outcome)
            if whole is not None:
                self._end(share.job, whole)

    def _end(self, job: WaveJob, outcome: Outcome) -> None:
        with self._wake:
            self._jobs.remove(job)
            self._on_waiting(len(self._jobs))
        try:
            job.deliver(outcome)
        except Exception:
            logger.exception("an outcome of utterance %s could not be delivered", job.chunk.utterance_id)
