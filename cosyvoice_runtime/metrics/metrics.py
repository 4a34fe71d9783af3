"""The metrics of one model, each labelled with the model's name.

One process writes them and another reads them, without a lock or a call between the two. They stand in files
of the format of prometheus_client's multiprocess mode, whose collector reads them: how much of the file is
used (4 bytes, and 4 of padding), then for each number the length of its key (4 bytes), the key in UTF-8,
filled up with 1 to 8 spaces to a multiple of 8 bytes, the number, and a time that only some gauges of the
library have (8 bytes each). The library itself, with the HTTP server that it imports, would take 3 MiB of
each process that writes. Its mode is not turned on: the switch, the variable ``PROMETHEUS_MULTIPROC_DIR``, is
one for the whole process, and vLLM reads it as well.

Triton's own custom metrics are no way to do this: their updates from several threads of a model crash the
server of nvidia-pytriton 0.7.0.
"""

from __future__ import annotations

import fcntl
import json
import logging
import math
import mmap
import os
import struct
import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count, pairwise
from pathlib import Path
from typing import IO, Literal

logger = logging.getLogger(__name__)

FIRST_SIZE = 1 << 16
HEAD = 8
INTEGER = struct.Struct("i")
NUMBER = struct.Struct("dd")


def number_key(family: str, name: str, labels: dict[str, str], description: str) -> str:
    """The key of a number, from its name and labels."""
    return json.dumps([family, name, labels, description], sort_keys=True)


class NumberFile:
    """A file of numbers that this process alone writes, new or existing; one thread uses it at a time."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a+b")
        size = os.fstat(self._file.fileno()).st_size
        if not size:
            os.truncate(self._file.fileno(), FIRST_SIZE)
        self._map = mmap.mmap(self._file.fileno(), size or FIRST_SIZE)
        self._used = INTEGER.unpack_from(self._map)[0] or HEAD
        self._offsets = self._read_offsets()
        self._tell_used()

    def read(self, key: str) -> float:
        """The number; a new one is 0."""
        if key not in self._offsets:
            self._append(key)
        return float(NUMBER.unpack_from(self._map, self._offsets[key])[0])

    def write(self, key: str, value: float) -> None:
        if key not in self._offsets:
            self._append(key)
        offset = self._offsets[key]
        # The bytes are replaced in one operation, because other processes read them.
        self._map[offset : offset + NUMBER.size] = NUMBER.pack(value, 0.0)

    def _append(self, key: str) -> None:
        encoded = key.encode()
        entry = INTEGER.pack(len(encoded)) + encoded + b" " * _padding(len(encoded))
        end = self._used + len(entry) + NUMBER.size
        while end > len(self._map):
            self._grow()
        self._map[self._used : end] = entry + NUMBER.pack(0.0, 0.0)
        self._offsets[key] = self._used + len(entry)
        self._used = end
        self._tell_used()

    def _grow(self) -> None:
        size = 2 * len(self._map)
        os.truncate(self._file.fileno(), size)
        self._map = mmap.mmap(self._file.fileno(), size)

    def _tell_used(self) -> None:
        self._map[: INTEGER.size] = INTEGER.pack(self._used)

    def _read_offsets(self) -> dict[str, int]:
        offsets, offset = {}, HEAD
        while offset < self._used:
            [length] = INTEGER.unpack_from(self._map, offset)
            begin = offset + INTEGER.size
            key = self._map[begin : begin + length].decode()
            offsets[key] = begin + length + _padding(length)
            offset = offsets[key] + NUMBER.size
        return offsets


def _padding(length: int) -> int:
    return HEAD - (length + INTEGER.size) % HEAD


DIRECTORY_VARIABLE = "SUPERVISOR_METRICS_DIR"
"""The environment variable that names the directory; the supervisor sets it."""
LIVING_GAUGES = "gauge_livesum"
"""The prefix of gauge files, which are summed over the living processes."""

Kind = Literal["gauge", "counter", "histogram"]
Labels = dict[str, str]


def shared_directory() -> Path | None:
    """The directory from which this process's numbers are read; None without a supervisor."""
    directory = os.environ.get(DIRECTORY_VARIABLE)
    return Path(directory) if directory else None


def create_number(
    directory: Path | None, kind: Kind, family: str, name: str, labels: Labels, description: str
) -> Metric:
    """A number that starts at 0; numbers of one name and labels are shown as their sum.

    Args:
        directory: where readers look for it; None keeps it in this process.
        family: name of its metric.
        name: its own name, such as ``<family>_sum``.
        labels: its labels, with ``model``.
    """
    if directory is None:
        return Metric(SharedNumber(threading.Lock()))
    key = number_key(family, name, labels, description)
    return Metric(_opened(directory, labels["model"]).number(kind, key))


class SharedNumber:
    """A number, the sum of what dead processes left and of this process's metrics; without a file only
    here."""

    def __init__(self, lock: threading.Lock, file: NumberFile | None = None, key: str = "") -> None:
        self._file = file
        self._key = key
        self._left = 0.0 if file is None else file.read(key)
        self.addends: list[Metric] = []
        self.lock = lock

    def write(self) -> None:
        if self._file is not None:
            self._file.write(self._key, sum((metric.value for metric in self.addends), self._left))


class Metric:
    """One number that threads may change, at a few microseconds a change.

    It is summed with others of the same name and labels. Its place in the file is made with it, so a change
    never raises an error, which would end the schedulers' threads.

    Attributes:
        value: the number.
    """

    def __init__(self, shared: SharedNumber) -> None:
        self._shared = shared
        self.value = 0.0
        with shared.lock:
            shared.addends.append(self)

    def set(self, value: float) -> None:
        """Show this value; a counter shows what this object has counted in all."""
        with self._shared.lock:
            self.value = value
            self._shared.write()

    def add(self, amount: float) -> None:
        with self._shared.lock:
            self.value += amount
            self._shared.write()


class NumberFiles:
    """The files of one model process.

    Gauges end with their process. Counters and histograms are in numbered files: a new process locks the
    first free one and continues its counts. So there are as many files as there were processes at a time.
    """

    def __init__(self, directory: Path, model: str) -> None:
        name, self._held = _lock_free_name(directory, model)
        gauges = directory / f"{LIVING_GAUGES}_{model}.{os.getpid()}.db"
        gauges.unlink(missing_ok=True)  # The file may be left from an earlier process with this id.
        self._files: dict[Kind, NumberFile] = {
            "gauge": NumberFile(gauges),
            "counter": NumberFile(directory / f"counter_{name}.db"),
            "histogram": NumberFile(directory / f"histogram_{name}.db"),
        }
        self._numbers: dict[str, SharedNumber] = {}
        self._lock = threading.Lock()

    def number(self, kind: Kind, key: str) -> SharedNumber:
        with self._lock:
            if key not in self._numbers:
                self._numbers[key] = SharedNumber(self._lock, self._files[kind], key)
            return self._numbers[key]


_files: dict[tuple[Path, str], NumberFiles] = {}
_files_lock = threading.Lock()


def _opened(directory: Path, model: str) -> NumberFiles:
    with _files_lock:
        if (directory, model) not in _files:
            _files[directory, model] = NumberFiles(directory, model)
        return _files[directory, model]


def _lock_free_name(directory: Path, model: str) -> tuple[str, IO[bytes]]:
    """The first name of files that no living process has, and the file whose lock holds it."""
    for number in count():
        name = f"{model}.{number}"
        file = (directory / f"{name}.lock").open("wb")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
        else:
            return name, file
    raise AssertionError("numbers are endless")


class Histogram:
    """The number of values in each bucket; threads may add to it.

    Args:
        total: the sum of all values.
        counts: values in each bucket, one more than there are bounds.
        bounds: the upper bound of each bucket.
    """

    def __init__(self, total: Metric, counts: Sequence[Metric], bounds: Sequence[float]) -> None:
        self._total = total
        self._counts = counts
        self._bounds = bounds

    def observe(self, value: float) -> None:
        self._total.add(value)
        self._counts[bisect_left(self._bounds, value)].add(1)


class Metrics:
    """Makes one model's metrics, which the supervisor serves; without a supervisor they are kept only.

    Args:
        model: the label ``model``.
        directory: where the supervisor looks; by default the one that it named at the server's start.
    """

    def __init__(self, model: str, directory: Path | None = None) -> None:
        self._model = model
        self._directory = directory or shared_directory()
        if self._directory is None:
            _warn_once(model)

    def gauge(self, name: str, description: str, **labels: str) -> Metric:
        """A gauge that starts at 0, summed over the model's living processes."""
        return self._number("gauge", name, name, labels, description)

    def counter(self, name: str, description: str, **labels: str) -> Metric:
        """A counter over living and dead processes; a ValueError for a name that does not end in
        ``_total``."""
        if not name.endswith("_total"):
            raise ValueError(f"{name}: the name of a counter ends in _total")
        return self._number("counter", name.removesuffix("_total"), name, labels, description)

    def histogram(self, name: str, description: str, buckets: Sequence[float], **labels: str) -> Histogram:
        """A histogram of values.

        Args:
            buckets: the upper bound of each bucket, rising; larger values have a bucket of their own.

        Raises:
            ValueError: the bounds do not rise.
        """
        bounds = [*map(float, buckets), math.inf]
        if not all(low < high for low, high in pairwise(bounds)):
            raise ValueError(f"{name}: buckets {tuple(buckets)} are not finite and rising")
        total = self._number("histogram", name, f"{name}_sum", labels, description)
        each = [labels | {"le": repr(bound)} for bound in bounds]
        counts = [self._number("histogram", name, f"{name}_bucket", one, description) for one in each]
        return Histogram(total, counts, bounds[:-1])

    def _number(self, kind: Kind, family: str, name: str, labels: Labels, description: str) -> Metric:
        labels = {"model": self._model, **labels}
        return create_number(self._directory, kind, family, name, labels, description)


@cache
def _warn_once(model: str) -> None:
    logger.warning("%s: nobody serves its metrics, %s is not set", model, DIRECTORY_VARIABLE)


IN_WORK, IN_WORK_ABOUT = "cosyvoice_requests_in_work", "Requests without their final response yet."
REQUESTS, REQUESTS_ABOUT = "cosyvoice_requests_total", "Requests by how they ended."
REFUSED = "refused"
"""The label ``ending`` of requests without capacity; gateways count most of them for the model."""


class RequestCount:
    """Counts the requests of one model process; thread-safe.

    Call :meth:`enter` when a request arrives, and :meth:`leave` after its final response.
    """

    def __init__(self, model: str, directory: Path | None = None) -> None:
        directory = directory or shared_directory()
        self._metric = create_number(directory, "gauge", IN_WORK, IN_WORK, {"model": model}, IN_WORK_ABOUT)

    @property
    def count(self) -> int:
        return int(self._metric.value)

    def enter(self, requests: int = 1) -> None:
        self._metric.add(requests)

    def leave(self, requests: int = 1) -> None:
        self._metric.add(-requests)

    @contextmanager
    def during(self, requests: int) -> Iterator[None]:
        """Count requests that are answered within the block."""
        self.enter(requests)
        try:
            yield
        finally:
            self.leave(requests)
