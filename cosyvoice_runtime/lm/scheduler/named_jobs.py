"""Jobs by the ids of their requests, for those who stop them or bring further text."""

from __future__ import annotations

from cosyvoice_runtime.errors import InvalidInput, NotFoundError
from cosyvoice_runtime.lm.scheduler.job import Job
from cosyvoice_runtime.lm.scheduler.text_inbox import TextInbox

MOST_LATE = 256
"""Requests that ended before their text did, whose further text is taken and read by nobody: whoever sent it
could not know yet, and learns of the end from the stream."""


class NamedJobs:
    """Those that have not ended and have an id. Not for several threads at once."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._late: dict[str, TextInbox] = {}

    def require_free(self, request_id: str) -> None:
        """
        Raises:
            InvalidInput: a job has this id.
        """
        if request_id in self._jobs:
            raise InvalidInput("request_id", request_id, "a request with this id has not ended yet")

    def add(self, job: Job) -> None:
        if job.request.id:
            self._jobs[job.request.id] = job
            self._late.pop(job.request.id, None)

    def find(self, request_id: str) -> Job | None:
        return self._jobs.get(request_id)

    def text(self, request_id: str) -> TextInbox:
        """Where further text of a request goes.

        Raises:
            NotFoundError: no request with this id takes any.
        """
        job = self._jobs.get(request_id)
        text = self._late.get(request_id) if job is None else job.text
        if text is None:
            raise NotFoundError("request_id", request_id, "the request has ended, or takes no further text")
        return text

    def end(self, job: Job) -> None:
        """It has ended; once."""
        if self._jobs.pop(job.request.id, None) is None or job.text is None or job.text.is_complete:
            return
        self._late[job.request.id] = job.text
        if len(self._late) > MOST_LATE:
            del self._late[next(iter(self._late))]
