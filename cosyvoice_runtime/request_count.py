"""How many requests each model is working on, told by the models to the supervisor of their server.

Triton can't tell: it counts a finished request as in flight for as long as the client keeps its stream open.
A number in a file needs no lock between the processes, and none of Triton's custom metrics, each update of
which is a call into the server.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from pathlib import Path

DIRECTORY_VARIABLE = "SUPERVISOR_REQUEST_COUNT_DIR"
"""Names the directory; set by the supervisor, absent when a server runs without one."""
WIDTH = 12


class RequestCount:
    """Counts the requests of one model process; thread-safe.

    Call :meth:`enter` when a request arrives, and :meth:`leave` after its final response.
    """

    def __init__(self, model: str, directory: str | None = None) -> None:
        self._lock = threading.Lock()
        self._count = 0
        directory = directory or os.environ.get(DIRECTORY_VARIABLE)
        self._file = _create(Path(directory, f"{os.getpid()}-{model}")) if directory else None
        self._change(0)

    @property
    def count(self) -> int:
        return self._count

    def enter(self) -> None:
        self._change(1)

    def leave(self) -> None:
        self._change(-1)

    def _change(self, by: int) -> None:
        with self._lock:
            self._count += by
            if self._file is not None:
                os.pwrite(self._file, str(self._count).zfill(WIDTH).encode(), 0)


def read_request_counts(directory: Path) -> dict[str, int]:
    """Requests in work by model, summed over its living processes; a model that tells nothing is left out."""
    counts: Counter[str] = Counter()
    for path in directory.iterdir():
        pid, _, model = path.name.partition("-")
        if Path("/proc", pid).exists():
            counts[model] += int(path.read_bytes() or 0)
    return dict(counts)


def _create(path: Path) -> int:
    return os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644)
