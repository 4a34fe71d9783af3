"""A request in the scheduler: its text arrives, and its tokens leave in groups."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence
from typing import Protocol

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.errors import InvalidInput, NotFoundError
from cosyvoice_runtime.lm import FinishReason
from cosyvoice_runtime.lm.generation import SilenceFilter
from cosyvoice_runtime.lm.scheduler.request import Request
from cosyvoice_runtime.lm.text_rows import TextRows

logger = logging.getLogger(__name__)

MAX_GROUP = 8
"""Most tokens of a group in a stream whose request names no size."""
GROUP_GROWTH = 4
"""Such groups grow by one token for each so many sent: the first groups are small, for low latency."""
MOST_SILENCE = 50
"""Most uncounted tokens of a group, after which its reader gets them all the same."""
MOST_LATE = 256
"""Most requests that ended before their text did and whose further text is accepted: the sender can't know
yet, and learns of the end from the stream."""


class Reader(Protocol):
    """The receiver of a request's tokens.

    The scheduler's thread calls it between two steps of all requests, so nothing here may wait.
    """

    @property
    def cancelled(self) -> bool:
        """Whether no further tokens are wanted."""

    def send(
        self, tokens: Sequence[int], finish_reason: FinishReason | None, rows: Floats | None = None
    ) -> None:
        """Take new tokens; an exception means that no further ones are wanted.

        Args:
            rows: what they look at in the text, float32 ``[tokens, text tokens]``; None where nobody asks or
                it is not seen.
        """

    def finish(self, error: Exception | None) -> None:
        """Take the end, after the last tokens or instead of them; called once."""


class TextInbox:
    """Text of a request that arrives while the request runs. The scheduler's lock protects it.

    Args:
        room: most ids of all text together.

    Attributes:
        has_news: whether anything came since the last :meth:`take`.
        is_complete: whether no more may come.
    """

    def __init__(self, room: int) -> None:
        self.has_news = self.is_complete = False
        self._room = room
        self._ids: list[int] = []
        self._received = 0

    def put(self, ids: Sequence[int], ended: bool) -> None:
        """Add text, or say that it ends.

        Raises:
            InvalidInput: the text has ended already, ends without any id, or is too long.
        """
        received = self._received + len(ids)
        if self.is_complete:
            raise InvalidInput("more_text", f"{len(ids)} ids", "the text of this request is complete")
        if received > self._room:
            raise InvalidInput("more_text", f"{received} ids", f"at most {self._room}")
        if ended and not received:
            raise InvalidInput("end_text", ended, "at least one text id comes before the end")
        self._ids += ids
        self._received = received
        self.has_news, self.is_complete = True, ended

    def take(self) -> list[int]:
        """The ids that came since the last call."""
        ids, self._ids, self.has_news = self._ids, [], False
        return ids


class Job:
    """A request, and the tokens that its reader has not got yet. The scheduler's thread alone uses it.

    A stream's tokens leave in groups that its reader can use. Groups of a wanted size end at fixed numbers of
    tokens: one that left with more or fewer, because the text had run out, does not delay the next. Where the
    reader drops long silence, only the tokens that it keeps are counted.

    Attributes:
        text: the text that arrives while the request runs; None for a request whose text is whole.
        handle: the engine's name of the request while it holds a slot.
        rows: what its tokens look at in the text; None where nobody asks or the engine does not see it.
        finish_reason: None until the request has ended.
    """

    def __init__(self, request: Request, reader: Reader) -> None:
        self.request = request
        self.reader = reader
        self.text = None if request.text_room is None else TextInbox(request.text_room)
        self.handle: Hashable | None = None
        self.rows: TextRows | None = None
        self.finish_reason: FinishReason | None = None
        self._tokens: list[int] = []
        self._sent = 0
        self._keep = SilenceFilter(request.silent_tokens)
        self._uncounted = 0
        self._counted = len(self._keep(request.prompt.spoken))
        self._due = self._next_due() if self._counted else request.first_tokens

    def add(self, tokens: Sequence[int]) -> None:
        """Keep the tokens of a step."""
        counted = len(self._keep(tokens))
        self._counted += counted
        self._uncounted += len(tokens) - counted
        self._tokens += tokens

    @property
    def has_group(self) -> bool:
        """Whether the tokens are a group that a stream's reader gets."""
        whole = self._counted >= self._due or self._uncounted >= MOST_SILENCE
        return self.request.streaming and whole

    @property
    def has_rest(self) -> bool:
        """Whether a stream that has begun has tokens that are no whole group."""
        return self.request.streaming and self._sent > 0 and bool(self._tokens)

    @property
    def awaits_first(self) -> bool:
        """Whether a stream's reader has got no tokens yet."""
        return self.request.streaming and not self._sent

    @property
    def lacks_first(self) -> bool:
        """Whether the tokens that its reader gets first have not all been drawn."""
        return self.awaits_first and not self.has_group

    def send(self) -> None:
        """Give the reader all tokens; an exception means that it wants no more."""
        tokens, self._tokens = self._tokens, []
        rows = self.rows.take(len(tokens)) if self.rows is not None and tokens else None
        self._sent += len(tokens)
        self._uncounted = 0
        self._due = self._next_due()
        self.reader.send(tokens, self.finish_reason, rows)

    def end(self, reason: FinishReason, error: Exception | None) -> None:
        """Tell the reader what is left and the end, or the error; a failure of the reader is logged."""
        self.finish_reason = reason
        try:
            if error is None:
                self.send()
        except Exception as failure:
            error = failure
        try:
            self.reader.finish(error)
        except Exception:
            logger.exception("the reader of a request that has ended failed")

    def _next_due(self) -> int:
        """The number of counted tokens with which the next group is whole."""
        first, wanted = self.request.first_tokens, self.request.group_tokens
        if wanted is None:
            return self._counted + min(1 + self._sent // GROUP_GROWTH, MAX_GROUP)
        if self._counted < first:
            return first
        return self._counted + wanted - (self._counted - first) % wanted


class NamedJobs:
    """Jobs with an id that have not ended, by which they are stopped or get further text.

    The scheduler's lock protects them.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._late: dict[str, TextInbox] = {}

    def require_free(self, request_id: str) -> None:
        """Raise an InvalidInput where a job has this id."""
        if request_id in self._jobs:
            raise InvalidInput("request_id", request_id, "a request with this id has not ended yet")

    def add(self, job: Job) -> None:
        if job.request.id:
            self._jobs[job.request.id] = job
            self._late.pop(job.request.id, None)

    def find(self, request_id: str) -> Job | None:
        return self._jobs.get(request_id)

    def text(self, request_id: str) -> TextInbox:
        """The inbox for further text of a request; a NotFoundError tells that no request with this id takes
        any."""
        job = self._jobs.get(request_id)
        text = self._late.get(request_id) if job is None else job.text
        if text is None:
            raise NotFoundError("request_id", request_id, "the request has ended, or takes no further text")
        return text

    def end(self, job: Job) -> None:
        """Forget a job that has ended."""
        if self._jobs.pop(job.request.id, None) is None or job.text is None or job.text.is_complete:
            return
        self._late[job.request.id] = job.text
        if len(self._late) > MOST_LATE:
            del self._late[next(iter(self._late))]
