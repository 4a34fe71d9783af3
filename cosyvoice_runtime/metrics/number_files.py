"""Numbers that one process writes and another reads, without a lock or a call between them.

They stand in files of the format of prometheus_client's multiprocess mode, whose collector reads them. The
mode itself is not turned on: its switch, the variable ``PROMETHEUS_MULTIPROC_DIR``, is one for the whole
process, and vLLM reads it as well. So these numbers stay apart from those of any other user of the library.

Triton's own custom metrics are no way to do this: their updates from several threads of a model crash the
server of nvidia-pytriton 0.7.0.
"""

from __future__ import annotations

import fcntl
import os
import threading
from itertools import count
from pathlib import Path
from typing import IO, Literal, Protocol

from prometheus_client.mmap_dict import MmapedDict, mmap_key
from prometheus_client.values import MutexValue

DIRECTORY_VARIABLE = "SUPERVISOR_METRICS_DIR"
"""Names the directory; set by the supervisor, absent when a server runs without one."""
LIVING_GAUGES = "gauge_livesum"
"""Start of the names of files with gauges, which are summed over the living processes."""

Kind = Literal["gauge", "counter", "histogram"]
Labels = dict[str, str]


class Number(Protocol):
    """A float; thread-safe."""

    def get(self) -> float: ...

    def set(self, value: float) -> None: ...

    def inc(self, amount: float) -> None: ...


def shared_directory() -> Path | None:
    """Where somebody reads this process's numbers; None when nobody does."""
    directory = os.environ.get(DIRECTORY_VARIABLE)
    return Path(directory) if directory else None


def create_number(
    directory: Path | None, kind: Kind, family: str, name: str, labels: Labels, description: str
) -> Number:
    """A number that starts at 0; those of one name and the same labels are shown as their sum.

    Args:
        directory: where readers look for it; None when nobody reads it.
        family: name of the metric that it belongs to.
        name: its own name, such as ``<family>_sum``.
        labels: with ``model``.
    """
    if directory is None:
        return MutexValue(kind, family, name, list(labels), list(labels.values()), description)
    key = mmap_key(family, name, list(labels), list(labels.values()), description)
    return _opened(directory, labels["model"]).number(kind, key).share()


class SharedNumber:
    """A number in a file: what dead processes left, and the sum of this process's shares."""

    def __init__(self, file: MmapedDict, key: str, lock: threading.Lock) -> None:
        self._file = file
        self._key = key
        self._left = file.read_value(key)[0]
        self._shares: list[Share] = []
        self.lock = lock

    def share(self) -> Share:
        """A new one."""
        with self.lock:
            self._shares.append(Share(self))
            return self._shares[-1]

    def write(self) -> None:
        total = sum((share.amount for share in self._shares), self._left)
        self._file.write_value(self._key, total, 0.0)


class Share:
    """A :class:`Number` that is added to others of the same name and labels."""

    def __init__(self, number: SharedNumber) -> None:
        self._number = number
        self.amount = 0.0

    def get(self) -> float:
        return self.amount

    def set(self, value: float) -> None:
        with self._number.lock:
            self.amount = value
            self._number.write()

    def inc(self, amount: float) -> None:
        with self._number.lock:
            self.amount += amount
            self._number.write()


class NumberFiles:
    """The files of one model's process.

    Gauges end with their process. Counters and histograms belong to a place, which one process at a time
    holds: who takes the place of a dead process counts on from its numbers, in its files. So there are as
    many files as there were processes at a time.
    """

    def __init__(self, directory: Path, model: str) -> None:
        place, self._held = _take_place(directory, model)
        gauges = directory / f"{LIVING_GAUGES}_{model}.{os.getpid()}.db"
        gauges.unlink(missing_ok=True)  # of an earlier process with this id
        self._files: dict[Kind, MmapedDict] = {
            "gauge": MmapedDict(str(gauges)),
            "counter": MmapedDict(str(directory / f"counter_{place}.db")),
            "histogram": MmapedDict(str(directory / f"histogram_{place}.db")),
        }
        self._numbers: dict[str, SharedNumber] = {}
        self._lock = threading.Lock()

    def number(self, kind: Kind, key: str) -> SharedNumber:
        with self._lock:
            if key not in self._numbers:
                self._numbers[key] = SharedNumber(self._files[kind], key, self._lock)
            return self._numbers[key]


_files: dict[tuple[Path, str], NumberFiles] = {}
_files_lock = threading.Lock()


def _opened(directory: Path, model: str) -> NumberFiles:
    with _files_lock:
        if (directory, model) not in _files:
            _files[directory, model] = NumberFiles(directory, model)
        return _files[directory, model]


def _take_place(directory: Path, model: str) -> tuple[str, IO[bytes]]:
    """The first place that no living process has, and the file whose lock holds it."""
    for number in count():
        place = f"{model}.{number}"
        file = (directory / f"{place}.lock").open("wb")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
        else:
            return place, file
    raise AssertionError("places are endless")
