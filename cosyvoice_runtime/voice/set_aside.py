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
