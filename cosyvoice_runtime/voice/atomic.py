"""Files that are either whole or absent."""

from __future__ import annotations

import os
from pathlib import Path

INCOMING = ".incoming"


def replace_file(path: Path, content: bytes) -> None:
    """Write a file by way of a temporary one beside it.

    One writer per directory at a time: the temporary file always has the same name, so that a crash
    leaves at most one behind, and the next write takes it over. A write that fails leaves none.

    Raises:
        OSError: the disk is full, or the directory can't be written.
    """
    incoming = path.with_name(INCOMING)
    try:
        with open(incoming, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(incoming, path)
    except OSError:
        incoming.unlink(missing_ok=True)
        raise
