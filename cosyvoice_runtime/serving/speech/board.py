"""A shared file with the utterances in progress and the refused clients, for ``cosyvoice2`` and the
gateways."""

from __future__ import annotations

import mmap
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from cosyvoice_runtime.serving.speech.refusal_queue import MOST_TICKETS, TICKETS

BOARD_FILE = "admission"
"""The name of the file in the directory of the server's run."""
LEARNED = ("fixed", "speed", "margin", "audio_s", "held_s", "crowd_s", "late_s")
BOARD = np.dtype(
    [
        ("learned", [(name, "f8") for name in LEARNED]),
        ("held", "i8"),
        ("stay_s", "f8"),
        ("freed_s", "f8"),
        ("tickets", TICKETS, MOST_TICKETS),
    ]
)
"""The fields of the file, all zero at first. ``cosyvoice2`` alone writes them, except for tickets, which
every process that refuses a client issues. Each number is written separately, so that a process that dies
leaves no torn record."""


def open_board(path: Path | None) -> Any:
    """One record of :data:`BOARD`, shared by all processes that open the file.

    Args:
        path: path of the file, which is made if missing; None for a board of this process alone.
    """
    file: Any = tempfile.TemporaryFile() if path is None else path.open("a+b")  # noqa: SIM115
    with file:
        file.truncate(BOARD.itemsize)
        return np.frombuffer(mmap.mmap(file.fileno(), BOARD.itemsize), BOARD)[0]
