"""When what happens on an utterance's way, written down for one who measures it.

Off unless the variable ``UTTERANCE_MOMENTS_DIR`` names a folder when the process starts. Each process then
writes a line for every moment into a file of its own: monotonic seconds, which all processes of a machine
share, whose moment it is, and a name.
"""

from __future__ import annotations

import os
import time
from contextvars import ContextVar
from functools import cache
from itertools import count
from pathlib import Path
from typing import NamedTuple

DIRECTORY_VARIABLE = "UTTERANCE_MOMENTS_DIR"
_FOLDER = os.environ.get(DIRECTORY_VARIABLE)
_ALSO = "also"
_NOBODY = "-"
_numbers = count()
_request: ContextVar[str] = ContextVar("request", default=_NOBODY)


class Moment(NamedTuple):
    """
    Attributes:
        at: monotonic seconds.
        utterance: the request that it belongs to; "-" where nobody said.
    """

    at: float
    utterance: str
    name: str


def now() -> float:
    """Monotonic seconds, which all processes of a machine share."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def begin() -> None:
    """Notes of this task from now on belong to a request of its own."""
    if _FOLDER:
        _request.set(f"{os.getpid()}.{next(_numbers)}")


def also(name: str) -> None:
    """The task's request goes by this name elsewhere."""
    if _FOLDER:
        _write(_request.get(), f"{_ALSO} {name}")


def note(moment: str, *utterances: str) -> None:
    """Write a moment down, if anybody wants it: of these utterances, or of the task's request."""
    if _FOLDER:
        for utterance in utterances or [_request.get()]:
            _write(utterance or _NOBODY, moment)


def _write(utterance: str, what: str) -> None:
    # At once, as a process of a model may be killed; and by one call, for what writes takes time from others.
    os.write(_file(_FOLDER or "", os.getpid()), f"{now():.6f} {utterance} {what}\n".encode())


@cache
def _file(folder: str, process: int) -> int:
    return os.open(Path(folder) / f"{process}.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def read(folder: Path) -> list[Moment]:
    """All moments that processes have written down, in order, each under its request's first name."""
    lines = [line for path in folder.glob("*.txt") for line in path.read_text(encoding="utf-8").splitlines()]
    noted = sorted(
        Moment(float(at), utterance, name) for at, utterance, name in (line.split(" ", 2) for line in lines)
    )
    first_names = {name.removeprefix(f"{_ALSO} "): who for _, who, name in noted if name.startswith(_ALSO)}
    return [
        Moment(at, first_names.get(who, who), name) for at, who, name in noted if not name.startswith(_ALSO)
    ]
