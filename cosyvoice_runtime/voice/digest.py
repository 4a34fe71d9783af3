"""Content hashes of voices and files."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import numpy as np
from torch import Tensor

from cosyvoice_runtime.arrays import Array

BLOCK_BYTES = 1 << 20
KEY = re.compile(r"[0-9a-f]{64}")
"""What :func:`content_hash` returns."""


def content_hash(*parts: str | int | Tensor | Array) -> str:
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


def _encode(part: str | int | Tensor | Array) -> tuple[str, bytes]:
    if not isinstance(part, str | int):
        array = np.asarray(part)
        return f"{array.dtype.str}{array.shape}", array.tobytes()
    return type(part).__name__, str(part).encode()
