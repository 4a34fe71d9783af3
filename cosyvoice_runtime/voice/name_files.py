"""JSON files that are called after voices."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

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
