"""Files of voices: written whole or not at all, and set aside when they can't be read."""

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


SUFFIX = ".damaged"
MAX_KEPT = 10
"""In one directory; they are needed by nobody."""


def set_aside(path: Path) -> None:
    """Rename a file to ``<name>.damaged``; remove it where the directory has ``MAX_KEPT`` of those already.

    Raises:
        OSError: the directory can't be written.
    """
    aside = _aside(path)
    if aside.exists() or sum(1 for _ in path.parent.glob(f"*{SUFFIX}")) < MAX_KEPT:
        path.replace(aside)
    else:
        path.unlink()


def remove_with_damaged(path: Path) -> None:
    """Remove a file, and the one that was set aside in its place.

    Raises:
        OSError: the directory can't be written.
    """
    path.unlink()
    _aside(path).unlink(missing_ok=True)


def _aside(path: Path) -> Path:
    return path.with_name(path.name + SUFFIX)
