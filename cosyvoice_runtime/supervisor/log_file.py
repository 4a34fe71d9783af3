"""The log file of a server's processes, with a limit on its size."""

from __future__ import annotations

import logging
import os
import shutil
import threading
from pathlib import Path
from typing import IO

logger = logging.getLogger(__name__)

INTERVAL_S = 1.0
"""The time between two checks of its size."""
PAUSE_S = 60.0
"""The pause before the next try, when there was no room for a copy."""


class LogFile:
    """A file that is copied to ``NAME.1``, which is overwritten, and emptied when it is full.

    The processes hold it open, tritonserver for months, so it can't be replaced by another one. They append,
    and so go on at its new end; what they write just between copy and cut is lost. They need nobody who
    takes lines from them: a supervisor that is busy holds up no server.

    Args:
        limit: bytes that make it full; both files together take twice as much, and what comes in a second.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self.path = path
        self._limit = limit
        self._start = 0
        self._closed = threading.Event()

    def open(self) -> IO[bytes]:
        """Open the file for appending, for a process."""
        return self.path.open("ab")

    def begin(self) -> None:
        """Note the start of a run, and watch the file until :meth:`end`."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.open() as log:
            self._start = log.tell()
        self._closed = threading.Event()
        threading.Thread(target=self._watch, args=[self._closed], name="log", daemon=True).start()

    def end(self) -> None:
        """Stop watching the file."""
        self._closed.set()

    def text(self) -> str:
        """The output of this run, as far as it is in the present file."""
        with self.path.open("rb") as log:
            log.seek(self._start)
            return log.read().decode(errors="replace")

    def turn_over(self) -> None:
        """Copy a full file, then empty it.

        Raises:
            OSError: there is no room for the copy.
        """
        if self.path.stat().st_size >= self._limit:
            shutil.copyfile(self.path, self.path.with_name(f"{self.path.name}.1"))
            os.truncate(self.path, 0)
            self._start = 0

    def _watch(self, closed: threading.Event) -> None:
        pause_s = INTERVAL_S
        while not closed.wait(pause_s):
            try:
                self.turn_over()
                pause_s = INTERVAL_S
            except OSError as error:
                logger.error("%s can't be kept to its size: %s", self.path, error)
                pause_s = PAUSE_S
