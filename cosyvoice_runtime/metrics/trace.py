"""Events of utterances, for measurements and for spans.

For measurements, the variable ``UTTERANCE_TRACE_DIR`` names a folder when the process starts. Each process
then writes a line for every event into a file of its own: monotonic seconds, which all processes of a machine
share, the request, and a name.

Where spans are asked for (:func:`send`), each process has one for a request, in which the events stand that a
reader of traces wants. A process says by the request's name which span of another process is its parent's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from cosyvoice_runtime.process.headers import PARENT, TRACEPARENT
from cosyvoice_runtime.process.spans import SERVER, Spans, attributes, open_spans

DIRECTORY_VARIABLE = "UTTERANCE_TRACE_DIR"
_FOLDER = os.environ.get(DIRECTORY_VARIABLE)
_ALSO = "also"
_UNKNOWN = "-"
_numbers = count()
_request: ContextVar[str] = ContextVar("request", default=_UNKNOWN)
_spans: Spans | None = None
_noted: dict[str, NotedSpan] = {}
"""Spans in progress by each name of their requests; always empty while no spans are asked for."""


class TracedEvent(NamedTuple):
    """One event of a trace, at monotonic seconds, and the utterance that it belongs to; "-" if unknown."""

    at: float
    utterance: str
    name: str


def now() -> float:
    """Monotonic seconds, which all processes of a machine share."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def send() -> None:
    """Send spans of this process, if its environment asks for them; an InvalidInput tells why it can't."""
    global _spans
    _spans = open_spans(SERVER)


def close() -> None:
    """Send the last spans."""
    global _spans
    if _spans is not None:
        _spans.close()
    _spans = None


def begin(name: str = "") -> None:
    """Assign the events of this task to a request from now on.

    Args:
        name: what :func:`request` says of it in another process; a new request without it.
    """
    if _FOLDER:
        _request.set(name or f"{os.getpid()}.{next(_numbers)}")


def utterance(
    part: str, name: str = "", headers: Mapping[str, str] | None = None
) -> AbstractContextManager[None]:
    """Assign the events of this task to a request within the block, which is a span where those are sent.

    Args:
        part: name of the span.
        name: what :func:`request` says of it in another process.
        headers: of the trace in place of a name. With neither there is no span.
    """
    if headers is None and PARENT.fullmatch(name):
        headers = {TRACEPARENT: name}
    if _spans is not None and headers is not None:
        return _recorded(_spans, part, headers)
    begin(name)
    return nullcontext()


@contextmanager
def _recorded(spans: Spans, part: str, headers: Mapping[str, str]) -> Iterator[None]:
    with spans.during(part, headers) as span:
        name = spans.headers(span)[TRACEPARENT]
        noted = NotedSpan(span, [name])
        _request.set(name)
        if span.is_recording():  # Otherwise the trace is none that is sampled.
            _noted[name] = noted
        try:
            yield
        finally:
            for each in noted.names:
                _noted.pop(each, None)


def request() -> str:
    """The name of this task's request; empty where nothing is recorded of it."""
    name = _request.get()
    return name if _FOLDER or name in _noted else ""


def also(name: str) -> None:
    """Record another name of the task's request."""
    if _FOLDER:
        _write(_request.get(), f"{_ALSO} {name}")
    if _noted and (noted := _noted.get(_request.get())) is not None:
        noted.names.append(name)
        _noted[name] = noted


def note(event: str, *utterances: str) -> None:
    """Record an event of these utterances, or of the task's request, if tracing is on."""
    if _FOLDER:
        for utterance in utterances or [_request.get()]:
            _write(utterance or _UNKNOWN, event)
    if _noted:
        for utterance in utterances or [_request.get()]:
            if (noted := _noted.get(utterance)) is not None:
                noted.note(event, utterance)


def tell(**said: Any) -> None:
    """Record facts of the task's request as attributes of its span; those that are None are left out."""
    if _noted and (noted := _noted.get(_request.get())) is not None:
        noted.span.set_attributes(attributes(**said))


SENT_AUDIO = ("the engine has sent audio", "cosyvoice2 has sent audio")
SHOWN = {
    "it is admitted": "admitted",
    "its voice is there": "voice",
    "text and voice are ready": "text",
    **dict.fromkeys(SENT_AUDIO, "first chunk"),
}
"""Names in spans of what is shown when it first happens to a request."""
MEASURED = {
    "a token is drawn": ("prefill", "the speech LM has the request", "the speech LM begins"),
    "its batch ends": ("token2wav turn", "token2wav has the chunk", "its batch begins"),
}
"""Names in spans of work that ends with an event, with those from which it has waited and been computed."""
AGAIN = {"its batch ends": "token2wav has the chunk"}
"""The event from which a chunk waits for another turn, by the one that ends a turn."""


class NotedSpan:
    """The span of a request, to which threads note events.

    Attributes:
        names: all names of the request.
    """

    def __init__(self, span: Any, names: list[str]) -> None:
        self.span = span
        self.names = names
        self._shown: set[str] = set()
        self._since: dict[tuple[str, str], float] = {}

    def note(self, event: str, utterance: str) -> None:
        """Note an event of the request by one of its names."""
        if event in SHOWN:
            if SHOWN[event] not in self._shown:
                self._shown.add(SHOWN[event])
                self.span.add_event(SHOWN[event])
        elif event in MEASURED:
            self._end(event, utterance)
        else:
            self._since[utterance, event] = now()

    def _end(self, event: str, utterance: str) -> None:
        name, waits, works = MEASURED[event]
        waited, worked = (self._since.pop((utterance, each), None) for each in (waits, works))
        if waited is None or worked is None:
            return  # Not the first token, or a turn that began before the span.
        ended = now()
        self.span.add_event(name, {"wait_ms": _ms(worked - waited), "compute_ms": _ms(ended - worked)})
        if event in AGAIN:
            self._since[utterance, AGAIN[event]] = ended


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 3)


def _write(utterance: str, what: str) -> None:
    # The event is written immediately, in one system call, because a model process may be killed.
    os.write(_file(_FOLDER or "", os.getpid()), f"{now():.6f} {utterance} {what}\n".encode())


@cache
def _file(folder: str, process: int) -> int:
    return os.open(Path(folder) / f"{process}.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def read(folder: Path) -> list[TracedEvent]:
    """All recorded events in order, each with its request's first name."""
    lines = [line for path in folder.glob("*.txt") for line in path.read_text(encoding="utf-8").splitlines()]
    noted = sorted(
        TracedEvent(float(at), utterance, name)
        for at, utterance, name in (line.split(" ", 2) for line in lines)
    )
    first_names = {name.removeprefix(f"{_ALSO} "): who for _, who, name in noted if name.startswith(_ALSO)}
    return [
        TracedEvent(at, first_names.get(who, who), name)
        for at, who, name in noted
        if not name.startswith(_ALSO)
    ]
