"""What ``cosyvoice2`` and the gateways know of the utterances in progress and of refused clients: a file."""

from __future__ import annotations

import mmap
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from cosyvoice_runtime.serving.speech.tickets import MOST_TICKETS, TICKETS

BOARD_FILE = "admission"
"""Name of the file in the directory of the server's run."""
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
"""All zero at first. ``cosyvoice2`` alone writes it, but for tickets, which whoever refuses a client issues.
Every number is written by itself, so that a process that dies leaves none half written."""


def open_board(path: Path | None) -> Any:
    """One record of :data:`BOARD`, shared by all processes that open the file.

    Args:
        path: the file, made when missing; None for a board of this process alone.
    """
    file: Any = tempfile.TemporaryFile() if path is None else path.open("a+b")  # noqa: SIM115
    with file:
        file.truncate(BOARD.itemsize)
        return np.frombuffer(mmap.mmap(file.fileno(), BOARD.itemsize), BOARD)[0]
