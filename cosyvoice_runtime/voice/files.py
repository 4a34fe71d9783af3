"""Files of voices: written whole or not at all, set aside when they can't be read, and named after voices."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

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


DAMAGED = ".damaged"
MAX_KEPT = 10
"""Damaged files of one directory that are kept; nobody needs them."""


def set_aside(path: Path) -> None:
    """Rename a file to ``<name>.damaged``; remove it where the directory has ``MAX_KEPT`` of those
    already."""
    aside = _aside(path)
    if aside.exists() or sum(1 for _ in path.parent.glob(f"*{DAMAGED}")) < MAX_KEPT:
        path.replace(aside)
    else:
        path.unlink()


def remove_with_damaged(path: Path) -> None:
    """Remove a file, and the one that was set aside in its place."""
    path.unlink()
    _aside(path).unlink(missing_ok=True)


def _aside(path: Path) -> Path:
    return path.with_name(path.name + DAMAGED)


SUFFIX = ".json"
PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_.-")
MAX_STEM = 160
"""Bytes of a file's name before its suffix. File systems take 255."""
DIGEST_LENGTH = 32
MAX_EARLIER = 240
"""Bytes of the longest name that earlier versions took."""


def path_of(directory: Path, name: str) -> Path:
    """The file of a voice's name, which says the name under ``name``.

    Its own name is ASCII in lower case. So it is the same file in any locale, and other names have other
    files where a file system ignores case or spells accents in another way. A file that an earlier version
    has called after the name itself stays where it is.
    """
    path = directory / f"{_stem(name)}{SUFFIX}"
    if path.exists() or len(name.encode()) > MAX_EARLIER:
        return path
    earlier = directory / os.fsdecode(f"{name}{SUFFIX}".encode())
    content = read_object(earlier)
    return path if content is None or name_of(earlier, content) != name else earlier


def name_of(path: Path, content: dict[str, Any]) -> str:
    """The name that a file is for; earlier versions wrote none into it."""
    return str(content.get("name", os.fsencode(path.stem).decode(errors="replace")))


def read_object(path: Path) -> dict[str, Any] | None:
    """The object in a file; None when the file is missing or holds something else."""
    try:
        content = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _stem(name: str) -> str:
    stem = "".join(chr(byte) if byte in PLAIN else f"%{byte:02x}" for byte in name.encode())
    if len(stem) <= MAX_STEM:
        return stem
    digest = hashlib.sha256(name.encode()).hexdigest()[:DIGEST_LENGTH]
    return f"{stem[: MAX_STEM - len(digest) - 1]}~{digest}"
