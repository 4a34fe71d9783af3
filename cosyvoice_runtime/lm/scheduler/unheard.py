"""Requests whose readers have not got their first tokens, and the steps that they have for themselves."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence

from cosyvoice_runtime.lm.scheduler.job import Job

APART = 1
"""Steps in a row for those requests alone whose listeners wait for first tokens, before one for all."""


class Unheard:
    """Requests whose first tokens have not all been drawn. The scheduler's thread alone uses it.

    Attributes:
        apart: steps in a row, up to the last one, that were for some of them alone.

    Args:
        selective: whether the engine can advance some requests while others wait.
    """

    def __init__(self, selective: bool) -> None:
        self.apart = 0
        self._selective = selective
        self._jobs: list[Job] = []

    def add(self, job: Job) -> None:
        """Add a request that begins."""
        self._jobs.append(job)

    def waiting(self, starved: Collection[Job]) -> list[Job]:
        """Requests that wait although their text is there; those of ``starved`` wait for text."""
        self._jobs = [job for job in self._jobs if job.lacks_first and job.finish_reason is None]
        return [job for job in self._jobs if job not in starved]

    def alone(self, waiting: Sequence[Job], running: int) -> list[Hashable]:
        """Handles of those that the next step is for alone; none where it is for all ``running`` requests."""
        first = [job.handle for job in waiting if job.request.is_awaited]
        if not self._selective or 2 * len(first) > running or self.apart >= APART:
            first = []
        self.apart = self.apart + 1 if first else 0
        return first
