"""A directory that appears whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cosyvoice_runtime.errors import InvalidInput


@contextmanager
def fresh_directory(target: Path, force: bool = False) -> Iterator[Path]:
    """A new directory beside ``target``, which takes its place when the block ends without an error.

    Raises:
        InvalidInput: ``target`` is a file, or a directory that is not empty while ``force`` is False.
    """
    if target.exists() and not target.is_dir():
        raise InvalidInput("directory", str(target), "exists and is not a directory")
    if not force and target.is_dir() and any(target.iterdir()):
        raise InvalidInput("directory", str(target), "is not empty")
    target.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        building.chmod(0o755)
        yield building
        if target.exists():
            shutil.rmtree(target)
        building.rename(target)
    finally:
        shutil.rmtree(building, ignore_errors=True)
