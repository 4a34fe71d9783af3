"""The locks on the cache of compiled kernels: a process that fills it holds them, and captures wait for them.

One is freed when the speech LM's kernels are compiled. The system frees both when the process ends, however
it ends. Several servers that start at once on one machine compile once.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from pathlib import Path
from typing import IO

SPEECH_LM, ALL = "compiling_speech_lm.lock", "compiling.lock"
"""Names of the locks on the speech LM's kernels and on all."""
LONGEST_S, LOOK_S = 300.0, 0.05
"""The longest wait, which one core of a small machine may need, and the time between two looks."""

_log = logging.getLogger(__name__)


def cache_folder() -> Path:
    """Where the Triton language keeps compiled kernels."""
    return Path(os.environ.get("TRITON_CACHE_DIR") or Path.home() / ".triton" / "cache")


def is_compiled(key: str) -> bool:
    """Whether the cache has all kernels of a key."""
    return (cache_folder() / f"{key}.compiled").exists()


def note_compiled(key: str) -> None:
    """Note that the cache has them."""
    (cache_folder() / f"{key}.compiled").touch()


def lock_cache() -> tuple[IO[str], IO[str]] | None:
    """Lock the speech LM's kernels and all, for a process that inherits these files; None while another
    process fills the cache."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    every = (folder / ALL).open("w")
    try:
        fcntl.flock(every, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        every.close()
        return None
    of_lm = (folder / SPEECH_LM).open("w")
    fcntl.flock(of_lm, fcntl.LOCK_EX)  # At most for a look of one that waits.
    return of_lm, every


def wait_until_compiled(name: str = ALL) -> None:
    """Wait for a process that fills the cache, if there is one, but not for ever: what it has not compiled by
    then is compiled when it is first launched.

    Args:
        name: ``SPEECH_LM``, if its kernels suffice.
    """
    deadline = time.monotonic() + LONGEST_S
    try:
        with (cache_folder() / name).open() as lock:
            while not _is_free(lock):
                if time.monotonic() >= deadline:
                    _log.warning("kernels are not compiled after %.0f s: captures begin", LONGEST_S)
                    return
                time.sleep(LOOK_S)
    except OSError:  # Nobody has begun, or this process may not read there.
        return


def _is_free(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
