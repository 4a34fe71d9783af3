"""The chunks that have no outcome yet, in the order they came."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from cosyvoice_runtime.engine.batches.turn import WaveJob
from cosyvoice_runtime.errors import OverloadedError

logger = logging.getLogger(__name__)


class WaitingJobs:
    """For whoever holds its owner's lock.

    Args:
        most: that may wait to begin an utterance, and as many of utterances in progress.
        begins: whether a job would begin an utterance.
        on_change: told how many there are, whenever that has changed.
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
        """Take a job in. Those that wait to begin an utterance take no place of those in progress.

        Raises:
            OverloadedError: too many wait; never of a cancel.
        """
        if len(self._jobs) >= self._most and not job.chunk.cancel:
            begins = self._begins(job)
            alike = sum(self._begins(other) == begins for other in self._jobs)
            if alike >= self._most:
                raise OverloadedError(f"{alike} chunks wait, the limit; try again later")
        self._jobs.append(job)
        self._tell()

    def remove(self, job: WaveJob) -> bool:
        """Whether it was there."""
        if job not in self._jobs:
            return False
        self._jobs.remove(job)
        self._tell()
        return True

    def of(self, utterance_id: str) -> list[WaveJob]:
        """Those of one utterance."""
        return [job for job in self._jobs if job.chunk.utterance_id == utterance_id]

    def utterances(self) -> set[str]:
        """Their ids."""
        return {job.chunk.utterance_id for job in self._jobs}

    def first_of_each(self) -> list[WaveJob]:
        """The first job of each utterance that is not all launched."""
        first: dict[str, WaveJob] = {}
        for job in self._jobs:
            if job.waits:
                first.setdefault(job.chunk.utterance_id, job)
        return list(first.values())

    def _tell(self) -> None:
        try:
            self._on_change(len(self._jobs))
        except Exception:
            logger.exception("the number of waiting chunks could not be told")
