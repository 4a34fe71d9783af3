"""Files that can't be read, out of the way and yet there for whoever wants to look."""

from __future__ import annotations

from pathlib import Path

SUFFIX = ".damaged"
MAX_KEPT = 10
"""In one directory; they are needed by nobody."""


def set_aside(path: Path) -> None:
    """Rename a file to ``<name>.damaged``; remove it where the directory has ``MAX_KEPT`` of those already.

    Raises:
        OSError: the directory can't be written.
    """
    aside = path.with_name(path.name + SUFFIX)
    if aside.exists() or sum(1 for _ in path.parent.glob(f"*{SUFFIX}")) < MAX_KEPT:
        path.replace(aside)
    else:
        path.unlink()
