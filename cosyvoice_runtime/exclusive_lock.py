"""Locks between threads and processes, by way of files."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive_lock(path: Path, remove: bool = False) -> Iterator[None]:
    """Hold a file lock; it excludes other threads as well as other processes. Not reentrant.

    Args:
        remove: the file, too, is gone afterwards. For one path it is always the same.
    """
    while True:
        with open(path, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if remove and not _is_at(path, file.fileno()):
                continue  # its last holder removed it
            try:
                yield
            finally:
                if remove:
                    path.unlink(missing_ok=True)
            return


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
