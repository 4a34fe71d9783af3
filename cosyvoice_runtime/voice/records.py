"""Records that clients have sent with their voices: whose a voice is, who consented, and the recording."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cosyvoice_runtime.process.exclusive_lock import exclusive_lock
from cosyvoice_runtime.voice.files import SUFFIX, path_of, read_object, replace_file

Record = dict[str, Any]
Permission = Callable[[Record | None], bool]
"""Whether the voice of a record may be removed; None stands for a voice that nobody sent."""
LOCK_WAIT_S = 2.0
"""Longest wait for another process that changes voices: a stopped one must not take this one's threads."""
RECORDING = "recording"
"""Field of a record: SHA-256 of what was sent, which is the name of its file."""


class VoiceRecords:
    """``uploads/<name>.json`` is the record of a voice, ``uploads/recordings/<sha256>`` is its recording."""

    def __init__(self, directory: Path) -> None:
        self._records = directory / "uploads"
        self._recordings = self._records / "recordings"
        self._lock = self._records / "lock"

    def make(self) -> None:
        """Make the directory when it is missing. No lock is taken: another process may hold it."""
        self._recordings.mkdir(parents=True, exist_ok=True)
        with open(self._lock, "ab"):
            pass

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the records, which nobody else changes meanwhile. Not reentrant.

        Raises:
            TimeoutError: another process holds them for longer than :data:`LOCK_WAIT_S`.
            OSError: the directory can't be written.
        """
        self.make()
        with exclusive_lock(self._lock, wait_s=LOCK_WAIT_S):
            yield

    def read(self, name: str) -> Record | None:
        """The record of a voice, by the canonical spelling of its name; None without one."""
        record = read_object(path_of(self._records, name))
        return record if record is not None and record.get("name") == name else None

    def all(self) -> Iterator[Record]:
        """Every record, in the order of their files."""
        for path in sorted(self._records.glob(f"*{SUFFIX}")):
            if record := read_object(path):
                yield record

    def write(self, record: Mapping[str, Any], recording: bytes) -> None:
        """Keep a voice's record and its recording; an OSError leaves nothing of both."""
        try:
            replace_file(self._recordings / record[RECORDING], recording)
            replace_file(path_of(self._records, record["name"]), json.dumps(record).encode())
        except OSError:
            self.remove(record)
            raise

    def remove(self, record: Mapping[str, Any]) -> None:
        """Forget a record, and its recording with the last record of it."""
        path_of(self._records, record["name"]).unlink(missing_ok=True)
        if record[RECORDING] not in {other[RECORDING] for other in self.all()}:
            (self._recordings / record[RECORDING]).unlink(missing_ok=True)
