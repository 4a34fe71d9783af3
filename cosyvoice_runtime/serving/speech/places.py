"""Places for utterances that processes share: a file, in which whoever holds a place locks a byte of it."""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from cosyvoice_runtime.serving.speech.tickets import MOST_TICKETS, TICKETS

PLACES_FILE = "places"
"""Name of the file in the directory of the server's run."""
MOST_PLACES = 4096
LEARNED = ("fixed", "speed", "margin", "audio_s", "held_s", "crowd_s", "late_s")
BOARD = np.dtype(
    [
        ("learned", [(name, "f8") for name in LEARNED]),
        ("stay_s", "f8"),
        ("freed_s", "f8"),
        ("holders", "u8", MOST_PLACES),
        ("tickets", TICKETS, MOST_TICKETS),
    ]
)
"""What the processes tell each other; all zero at first. Every number is written by itself, so that a process
that dies leaves none half written."""
FLOCK = "hhqqi4x"
"""``struct flock`` of 64-bit Linux: type, whence, start, length, pid."""


class SharedPlaces:
    """Numbered places, each held by at most one utterance of all processes that have opened the file.

    The kernel frees the places of a process that has died: its locks end with it.

    Args:
        path: the file, made when missing; None for places of this process alone.

    Attributes:
        board: one record of :data:`BOARD`.
    """

    def __init__(self, path: Path | None) -> None:
        self._file: Any = tempfile.TemporaryFile() if path is None else path.open("a+b")  # noqa: SIM115
        self._file.truncate(BOARD.itemsize)
        self.board: Any = np.frombuffer(mmap.mmap(self._file.fileno(), BOARD.itemsize), BOARD)[0]
        self._holders = self.board["holders"]
        self._mine: set[int] = set()

    def held(self) -> Counter[int]:
        """How many places each client holds."""
        holders = self._holders.copy()  # numpy fails when others change what it looks through
        taken = np.flatnonzero(holders).tolist()
        return Counter(int(holders[place]) for place in taken if self._is_held(place))

    def take(self, limit: int, client: int) -> int | None:
        """The first free place below ``limit``, or None if there is none.

        Args:
            client: who has it; not 0.
        """
        for place in range(limit):
            if place not in self._mine and self._lock(place):
                self._mine.add(place)
                self._holders[place] = client
                return place
        return None

    def leave(self, place: int) -> None:
        """Free a place that this process holds."""
        self._holders[place] = 0
        self._mine.discard(place)
        self._control(fcntl.F_OFD_SETLK, fcntl.F_UNLCK, place)

    def _is_held(self, place: int) -> bool:
        """A dead process's entry stays until somebody takes the place."""
        return place in self._mine or (
            self._control(fcntl.F_OFD_GETLK, fcntl.F_WRLCK, place) != fcntl.F_UNLCK
        )

    def _lock(self, place: int) -> bool:
        try:
            self._control(fcntl.F_OFD_SETLK, fcntl.F_WRLCK, place)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def _control(self, command: int, kind: int, place: int) -> int:
        """The lock's kind afterwards."""
        request = struct.pack(FLOCK, kind, os.SEEK_SET, place, 1, 0)
        answer = fcntl.fcntl(self._file, command, request)
        return int(struct.unpack(FLOCK, answer)[0])
