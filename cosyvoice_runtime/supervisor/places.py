"""Places of files that a server needs: what it must be able to write, and what its models can read."""

from __future__ import annotations

import os
from pathlib import Path

CODE = Path(__file__).resolve().parents[2]


def not_writable(user: str, folder: Path) -> list[str]:
    """A sentence if nothing can be written into a folder, or into the one where it is to be made.

    Args:
        user: the setting, or the program, that writes there.
    """
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        return []
    remedy = f"mount a volume or a tmpfs there that user {os.geteuid()} may write to"
    return [f"{user} writes to {folder}, which can't be written: {remedy}, or name another place"]


def code_problems(executable: Path) -> list[str]:
    """Why the models' processes could not find an interpreter and this code, a sentence each.

    Python in them reads paths as ASCII, whatever the locale, and finds the interpreter by PATH.
    """
    problems = []
    if not str(CODE).isascii():
        problems.append(f"{CODE}: the code has to lie under a path in ASCII")
    if not str(executable).isascii() or os.pathsep in str(executable):
        problems.append(
            f"{executable}: the interpreter has to lie under a path in ASCII without '{os.pathsep}'"
        )
    return problems
