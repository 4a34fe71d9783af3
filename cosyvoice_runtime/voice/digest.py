"""Content hashes of voices and files."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import numpy as np

from cosyvoice_runtime.arrays import Array

BLOCK_BYTES = 1 << 20
KEY = re.compile(r"[0-9a-f]{64}")
"""Form of a :func:`content_hash`."""


def content_hash(*parts: str | int | Array) -> str:
    """SHA-256 over the parts' types, shapes and values; no two different lists of parts look alike."""
    digest = hashlib.sha256()
    for part in parts:
        label, content = _encode(part)
        digest.update(f"{label}:{len(content)}:".encode())
        digest.update(content)
    return digest.hexdigest()


def file_hash(*paths: str | Path) -> str:
    """SHA-256 over the contents of files, in the order given."""
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            digest.update(f"{os.fstat(file.fileno()).st_size}:".encode())
            while block := file.read(BLOCK_BYTES):
                digest.update(block)
    return digest.hexdigest()


def _encode(part: str | int | Array) -> tuple[str, bytes]:
    if isinstance(part, str | int):
        return type(part).__name__, str(part).encode()
    array = np.ascontiguousarray(part)
    return f"{array.dtype.str}{np.shape(part)}", array.tobytes()
