"""Locks between threads and processes, by way of files."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

LOOK_S = 0.02
"""The time between two attempts to get a lock with a limited wait."""


@contextmanager
def exclusive_lock(path: Path, remove: bool = False, wait_s: float | None = None) -> Iterator[None]:
    """Hold a file lock, which excludes other threads and processes; it is not reentrant.

    Args:
        remove: whether the file is removed afterwards; all users of a path must agree.
        wait_s: longest wait; None waits without a limit.

    Raises:
        TimeoutError: another holder kept the lock for longer than ``wait_s``.
    """
    while True:
        with open(path, "ab") as file:
            _lock(file, wait_s)
            if remove and not _is_at(path, file.fileno()):
                continue  # The last holder has removed the file.
            try:
                yield
            finally:
                if remove:
                    path.unlink(missing_ok=True)
            return


def _lock(file: IO[bytes], wait_s: float | None) -> None:
    if wait_s is None:
        fcntl.flock(file, fcntl.LOCK_EX)
        return
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                reason = f"somebody else has held its lock for {wait_s:g} s"
                raise TimeoutError(errno.ETIMEDOUT, reason, file.name) from None
        time.sleep(LOOK_S)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
