"""The file ``SHA256SUMS`` of a checkpoint, as the command ``sha256sum`` writes and reads it."""

from __future__ import annotations

import hashlib
import logging
import posixpath
import re
import shlex
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from cosyvoice_runtime.errors import CheckpointError

BLOCK_BYTES = 1 << 20


def sha256_of(path: str | Path) -> str:
    """SHA-256 of a file's content, 64 hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


logger = logging.getLogger(__name__)

FILE_NAME = "SHA256SUMS"
LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")


def write_checksums(directory: Path, names: Iterable[str], known: Mapping[str, str] | None = None) -> None:
    """List files of a directory.

    Args:
        names: relative to the directory.
        known: what their publisher says, for some of them; of the others it is what they hold now.
    """
    known = known or {}
    lines = [f"{known.get(name) or sha256_of(directory / name)}  {name}\n" for name in sorted(names)]
    (directory / FILE_NAME).write_text("".join(lines), encoding="utf-8")


def read_checksums(directory: Path) -> dict[str, str]:
    """SHA-256 by name, without ``./`` before it; empty without a list, and a CheckpointError for a damaged
    one."""
    path = directory / FILE_NAME
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: not readable: {error}") from error
    matches = [LINE.fullmatch(line) for line in lines]
    if None in matches:
        raise CheckpointError(f"{path}: line {matches.index(None) + 1} is no checksum")
    return {posixpath.normpath(match[2]): match[1] for match in matches if match}


def require_checksum(directory: Path, name: str) -> None:
    """Hold a file against the directory's list; one that the list lacks is logged.

    Raises:
        CheckpointError: the list has another SHA-256 for this file, or is damaged.
    """
    listed = read_checksums(directory)
    wanted = listed.get(name)
    if listed and wanted is None:
        warn_once(f"{directory / FILE_NAME} does not list {name}, which is read unchecked")
    if wanted is not None and _current(directory / name) != wanted:
        raise CheckpointError(
            f"{directory / name}: damaged, or changed on purpose: {FILE_NAME} lists another SHA-256; fetch "
            "it again, or list what is there: python -m cosyvoice_runtime.checkpoint --write-checksums "
            f"{shlex.quote(str(directory))}"
        )


def damages(directory: Path, required: Iterable[str]) -> list[str]:
    """A sentence for each of the ``required`` files that is missing, not listed, or not what the list
    says."""
    try:
        listed = read_checksums(directory)
    except CheckpointError as error:
        return [str(error)]
    return [
        f"{directory / name} is missing or damaged"
        for name in sorted({*required, *listed})
        if not (directory / name).is_file() or sha256_of(directory / name) != listed.get(name)
    ]


@lru_cache(maxsize=256)
def warn_once(line: str) -> None:
    """Log a warning, unless it was logged before."""
    logger.warning("%s", line)


_hashing: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)
"""Whoever asks for a file that is being read waits for that."""


def _current(path: Path) -> str:
    state = path.stat()
    with _hashing[path]:
        return _hash_once(path, state.st_ino, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=256)
def _hash_once(path: Path, *state: int) -> str:  # noqa: ARG001 - a file in another state is another one
    return sha256_of(path)
