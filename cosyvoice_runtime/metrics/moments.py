"""When what happens on an utterance's way, written down for one who measures it.

Off unless the variable ``UTTERANCE_MOMENTS_DIR`` names a folder when the process starts. Each process then
writes a line for every moment into a file of its own: monotonic seconds, which all processes of a machine
share, and a name. Lines carry no utterance: they can be told apart while one is spoken at a time.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

DIRECTORY_VARIABLE = "UTTERANCE_MOMENTS_DIR"
_FOLDER = os.environ.get(DIRECTORY_VARIABLE)


def note(moment: str) -> None:
    """Write a moment down, if anybody wants it."""
    if _FOLDER:
        now = time.clock_gettime(time.CLOCK_MONOTONIC)
        # Opened each time: a process of a model may be killed, and few utterances are measured.
        with open(Path(_FOLDER) / f"{os.getpid()}.txt", "a", encoding="utf-8") as file:
            file.write(f"{now:.6f} {moment}\n")


def read(folder: Path) -> list[tuple[float, str]]:
    """All moments that processes have written down, in order."""
    lines = [line for path in folder.glob("*.txt") for line in path.read_text(encoding="utf-8").splitlines()]
    moments = (line.split(" ", 1) for line in lines)
    return sorted((float(at), name) for at, name in moments)
