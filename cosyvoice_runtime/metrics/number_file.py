"""Named numbers in a file that other processes read, in the format of prometheus_client's collector.

The format is that of the library's multiprocess mode: how much of the file is used (4 bytes, and 4 of
padding), then for each number the length of its key (4 bytes), the key in UTF-8, filled up with 1 to 8 spaces
to a multiple of 8 bytes, the number, and a time that only some gauges of the library have (8 bytes each). The
library itself, with the HTTP server that it imports, would take 3 MiB of each process that writes.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from pathlib import Path

FIRST_SIZE = 1 << 16
HEAD = 8
INTEGER = struct.Struct("i")
NUMBER = struct.Struct("dd")


def number_key(family: str, name: str, labels: dict[str, str], description: str) -> str:
    """The key of a number, from its name and labels."""
    return json.dumps([family, name, labels, description], sort_keys=True)


class NumberFile:
    """A file of numbers, new or existing; one thread uses it at a time.

    Args:
        path: its path; no other process writes it.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("a+b")
        size = os.fstat(self._file.fileno()).st_size
        if not size:
            os.truncate(self._file.fileno(), FIRST_SIZE)
        self._map = mmap.mmap(self._file.fileno(), size or FIRST_SIZE)
        self._used = INTEGER.unpack_from(self._map)[0] or HEAD
        self._places = self._read_places()
        self._tell_used()

    def read(self, key: str) -> float:
        """The number; a new one is 0."""
        if key not in self._places:
            self._append(key)
        return float(NUMBER.unpack_from(self._map, self._places[key])[0])

    def write(self, key: str, value: float) -> None:
        if key not in self._places:
            self._append(key)
        place = self._places[key]
        # The bytes are replaced in one operation, because other processes read them.
        self._map[place : place + NUMBER.size] = NUMBER.pack(value, 0.0)

    def _append(self, key: str) -> None:
        encoded = key.encode()
        entry = INTEGER.pack(len(encoded)) + encoded + b" " * _padding(len(encoded))
        end = self._used + len(entry) + NUMBER.size
        while end > len(self._map):
            self._grow()
        self._map[self._used : end] = entry + NUMBER.pack(0.0, 0.0)
        self._places[key] = self._used + len(entry)
        self._used = end
        self._tell_used()

    def _grow(self) -> None:
        size = 2 * len(self._map)
        os.truncate(self._file.fileno(), size)
        self._map = mmap.mmap(self._file.fileno(), size)

    def _tell_used(self) -> None:
        self._map[: INTEGER.size] = INTEGER.pack(self._used)

    def _read_places(self) -> dict[str, int]:
        places, place = {}, HEAD
        while place < self._used:
            [length] = INTEGER.unpack_from(self._map, place)
            begin = place + INTEGER.size
            key = self._map[begin : begin + length].decode()
            places[key] = begin + length + _padding(length)
            place = places[key] + NUMBER.size
        return places


def _padding(length: int) -> int:
    return HEAD - (length + INTEGER.size) % HEAD
