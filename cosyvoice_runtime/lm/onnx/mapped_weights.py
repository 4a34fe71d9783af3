"""Weights that a session maps from a file beside its graph, and what of them lies in memory."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from mmap import MADV_DONTNEED
from pathlib import Path
from typing import NamedTuple

MAPS = Path("/proc/self/smaps")
FIELDS = 6
"""Of a mapping's first line in it, the last one the file, which may have spaces; sizes follow, one a line."""


class Mapping(NamedTuple):
    """Addresses of this process that are a file's.

    Attributes:
        resident: bytes that lie in memory.
        own: of these, bytes that are no longer the file's, for somebody wrote there.
    """

    start: int
    end: int
    resident: int
    own: int


def forget_mapped(*paths: Path) -> None:
    """Take files' pages out of this process's memory; what is read again comes back from them.

    A session reads all weights once, to lay those of products out in memory of its own, and some of them,
    as the scales of weights in 8 bits, never again. Any threads may read them meanwhile.
    """
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for mapping in mappings(*paths):
        if mapping.resident and not mapping.own:
            madvise(mapping.start, mapping.end - mapping.start, MADV_DONTNEED)


def mappings(*paths: Path) -> list[Mapping]:
    """Where files are mapped."""
    wanted = {str(path.resolve()) for path in paths}
    return [mapping for name, mapping in _all_mappings() if name in wanted]


def _all_mappings() -> Iterator[tuple[str, Mapping]]:
    name, start, end, sizes = "", 0, 0, {}
    for line in MAPS.read_text().splitlines():
        key, *values = line.split(maxsplit=FIELDS - 1)
        if key.endswith(":"):
            sizes[key] = values[0]
            if key == "Anonymous:":
                resident, own = (1024 * int(sizes[each]) for each in ("Rss:", key))
                yield name, Mapping(start, end, resident, own)
        else:
            start, end = (int(address, 16) for address in key.split("-"))
            name = values[-1] if len(values) == FIELDS - 1 else ""
