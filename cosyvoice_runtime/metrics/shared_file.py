"""Numbers that one process writes and another reads, without a lock or a call between them.

Every series has a file, mapped into its process: a line that describes it, then float64 numbers. Triton's own
custom metrics are no way to do this: their updates from several threads of a model crash the server of
nvidia-pytriton 0.7.0.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import mmap
import os
import tempfile
from operator import add
from pathlib import Path
from typing import IO

from cosyvoice_runtime.metrics.series import Series

DIRECTORY_VARIABLE = "SUPERVISOR_METRICS_DIR"
"""Names the directory; set by the supervisor, absent when a server runs without one."""
SUFFIX = ".metric"
NUMBER_BYTES = 8


def shared_directory() -> Path | None:
    """Where somebody reads this process's numbers; None when nobody does."""
    directory = os.environ.get(DIRECTORY_VARIABLE)
    return Path(directory) if directory else None


def create_numbers(series: Series, directory: Path | None) -> memoryview[float]:
    """Zeros that readers of the directory see while this process lives and holds them; float64 ``[size]``.

    A number is written by one machine instruction, so that readers never see half of it.
    """
    zeros = bytearray(NUMBER_BYTES * series.size)
    if directory is None:
        return memoryview(zeros).cast("d")
    header = _header(series)
    descriptor, path = tempfile.mkstemp(prefix=f"{series.name}-", dir=directory)
    with open(descriptor, "r+b") as file:
        # Tells readers that the owner lives: the mapping holds it until it or its process ends.
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(header + zeros)
        file.flush()
        mapping = mmap.mmap(file.fileno(), 0)
    os.rename(path, path + SUFFIX)  # complete, so readers may look at it
    return memoryview(mapping)[len(header) :].cast("d")


def read_series(directory: Path, name: str = "*") -> dict[Series, list[float]]:
    """The numbers of all living processes, summed where several tell the same; by default of every name."""
    found: dict[Series, list[float]] = {}
    for path in directory.glob(f"{name}-*{SUFFIX}"):
        try:
            with path.open("rb") as file:
                if _has_owner(file):
                    series, numbers = _read(file)
                    found[series] = list(map(add, found.get(series, [0.0] * series.size), numbers))
        except FileNotFoundError:
            continue  # the directory is being removed
    return found


def _header(series: Series) -> bytes:
    """One line, as long as some numbers, so that those after it are aligned."""
    text = json.dumps(dataclasses.asdict(series))
    return text.encode().ljust(len(text) + -(len(text) + 1) % NUMBER_BYTES) + b"\n"


def _has_owner(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _read(file: IO[bytes]) -> tuple[Series, list[float]]:
    header = file.readline()
    fields = json.loads(header)
    labels, bounds = tuple(map(tuple, fields.pop("labels"))), tuple(fields.pop("bounds"))
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapping:
        numbers = list(memoryview(mapping)[len(header) :].cast("d"))
    return Series(**fields, labels=labels, bounds=bounds), numbers
