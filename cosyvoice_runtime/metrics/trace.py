"""A trace of utterances: the times of named events, for measurements.

Off unless the variable ``UTTERANCE_TRACE_DIR`` names a folder when the process starts. Each process then
writes a line for every event into a file of its own: monotonic seconds, which all processes of a machine
share, the request, and a name.
"""

from __future__ import annotations

import os
import time
from contextvars import ContextVar
from functools import cache
from itertools import count
from pathlib import Path
from typing import NamedTuple

DIRECTORY_VARIABLE = "UTTERANCE_TRACE_DIR"
_FOLDER = os.environ.get(DIRECTORY_VARIABLE)
_ALSO = "also"
_UNKNOWN = "-"
_numbers = count()
_request: ContextVar[str] = ContextVar("request", default=_UNKNOWN)


class TracedEvent(NamedTuple):
    """One event of a trace, at monotonic seconds, and the utterance that it belongs to; "-" if unknown."""

    at: float
    utterance: str
    name: str


def now() -> float:
    """Monotonic seconds, which all processes of a machine share."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def begin(name: str = "") -> None:
    """Assign the events of this task to a request from now on.

    Args:
        name: what :func:`request` says of it in another process; a new request without it.
    """
    if _FOLDER:
        _request.set(name or f"{os.getpid()}.{next(_numbers)}")


def request() -> str:
    """The name of this task's request; empty while tracing is off."""
    return _request.get() if _FOLDER else ""


def also(name: str) -> None:
    """Record another name of the task's request."""
    if _FOLDER:
        _write(_request.get(), f"{_ALSO} {name}")


def note(event: str, *utterances: str) -> None:
    """Record an event of these utterances, or of the task's request, if tracing is on."""
    if _FOLDER:
        for utterance in utterances or [_request.get()]:
            _write(utterance or _UNKNOWN, event)


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
