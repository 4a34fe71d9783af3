"""The metrics of one model, each labelled with the model's name.

One process writes them and another reads them, without a lock or a call between the two. They stand in
files of the format of prometheus_client's multiprocess mode (``number_file.py``), whose collector reads
them. The mode itself is not turned on: its switch, the variable ``PROMETHEUS_MULTIPROC_DIR``, is one for the
whole process, and vLLM reads it as well. So these numbers stay apart from those of any user of the library.

Triton's own custom metrics are no way to do this: their updates from several threads of a model crash the
server of nvidia-pytriton 0.7.0.
"""

from __future__ import annotations

import fcntl
import logging
import math
import os
import threading
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from itertools import count, pairwise
from pathlib import Path
from typing import IO, Literal, Protocol

from cosyvoice_runtime.metrics.number_file import NumberFile, number_key

logger = logging.getLogger(__name__)

DIRECTORY_VARIABLE = "SUPERVISOR_METRICS_DIR"
"""The environment variable that names the directory; the supervisor sets it."""
LIVING_GAUGES = "gauge_livesum"
"""The prefix of gauge files, which are summed over the living processes."""

Kind = Literal["gauge", "counter", "histogram"]
Labels = dict[str, str]


class Number(Protocol):
    """A float that threads may change."""

    def get(self) -> float: ...

    def set(self, value: float) -> None: ...

    def inc(self, amount: float) -> None: ...


def shared_directory() -> Path | None:
    """The directory from which this process's numbers are read; None without a supervisor."""
    directory = os.environ.get(DIRECTORY_VARIABLE)
    return Path(directory) if directory else None


def create_number(
    directory: Path | None, kind: Kind, family: str, name: str, labels: Labels, description: str
) -> Number:
    """A number that starts at 0; numbers of one name and labels are shown as their sum.

    Args:
        directory: where readers look for it; None keeps it in this process.
        family: name of its metric.
        name: its own name, such as ``<family>_sum``.
        labels: its labels, with ``model``.
    """
    if directory is None:
        return SharedNumber(threading.Lock()).addend()
    key = number_key(family, name, labels, description)
    return _opened(directory, labels["model"]).number(kind, key).addend()


class SharedNumber:
    """A number in a file: the sum of what dead processes left and of this process's addends.

    Args:
        file: the file; None keeps the number in this process.
    """

    def __init__(self, lock: threading.Lock, file: NumberFile | None = None, key: str = "") -> None:
        self._file = file
        self._key = key
        self._left = 0.0 if file is None else file.read(key)
        self._addends: list[Addend] = []
        self.lock = lock

    def addend(self) -> Addend:
        """A new addend of the number."""
        with self.lock:
            self._addends.append(Addend(self))
            return self._addends[-1]

    def write(self) -> None:
        if self._file is not None:
            self._file.write(self._key, sum((addend.amount for addend in self._addends), self._left))


class Addend:
    """A :class:`Number` that is summed with others of the same name and labels."""

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
    """The files of one model process.

    Gauges end with their process. Counters and histograms are in numbered files: a new process locks the
    first free one and continues its counts. So there are as many files as there were processes at a time.
    """

    def __init__(self, directory: Path, model: str) -> None:
        place, self._held = _take_place(directory, model)
        gauges = directory / f"{LIVING_GAUGES}_{model}.{os.getpid()}.db"
        gauges.unlink(missing_ok=True)  # The file may be left from an earlier process with this id.
        self._files: dict[Kind, NumberFile] = {
            "gauge": NumberFile(gauges),
            "counter": NumberFile(directory / f"counter_{place}.db"),
            "histogram": NumberFile(directory / f"histogram_{place}.db"),
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


def _take_place(directory: Path, model: str) -> tuple[str, IO[bytes]]:
    """The first free number of a file, and the file whose lock holds it."""
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


class Metric:
    """One number that threads may change, at a few microseconds a change."""

    def __init__(self, number: Number) -> None:
        self._number = number

    @property
    def value(self) -> float:
        return self._number.get()

    def set(self, value: float) -> None:
        """Show this value; a counter shows what this object has counted in all."""
        self._number.set(value)

    def add(self, amount: float) -> None:
        self._number.inc(amount)


class Histogram:
    """The number of values in each bucket; threads may add to it.

    Args:
        total: the sum of all values.
        counts: values in each bucket, one more than there are bounds.
        bounds: the upper bound of each bucket.
    """

    def __init__(self, total: Number, counts: Sequence[Number], bounds: Sequence[float]) -> None:
        self._total = total
        self._counts = counts
        self._bounds = bounds

    def observe(self, value: float) -> None:
        self._total.inc(value)
        self._counts[bisect_left(self._bounds, value)].inc(1)


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
        return Metric(self._number("gauge", name, name, labels, description))

    def counter(self, name: str, description: str, **labels: str) -> Metric:
        """A counter, summed over living and dead processes.

        Raises:
            ValueError: its name does not end in ``_total``.
        """
        if not name.endswith("_total"):
            raise ValueError(f"{name}: the name of a counter ends in _total")
        return Metric(self._number("counter", name.removesuffix("_total"), name, labels, description))

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

    def _number(self, kind: Kind, family: str, name: str, labels: Labels, description: str) -> Number:
        labels = {"model": self._model, **labels}
        return create_number(self._directory, kind, family, name, labels, description)


@cache
def _warn_once(model: str) -> None:
    logger.warning("%s: nobody serves its metrics, %s is not set", model, DIRECTORY_VARIABLE)
