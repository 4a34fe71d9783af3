"""A directory that appears whole or not at all, whoever else writes it at the same time."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.process.exclusive_lock import exclusive_lock


@contextmanager
def fresh_directory(target: Path, force: bool = False) -> Iterator[Path]:
    """A new directory beside ``target``, which takes its place when the block ends without an error.

    Waits while another thread or process is in such a block for the same target.

    Raises:
        InvalidInput: ``target`` is a file, or a directory that is not empty while ``force`` is False.
    """
    with _only_writer(target), _replacement(target, force) as building:
        yield building


def renew_directory(
    target: Path, stale: Callable[[], list[str]], write: Callable[[Path], None], marker: str | None = None
) -> list[str]:
    """Write a directory unless it is current, or another thread or process makes it so meanwhile.

    Args:
        stale: why ``target`` has to be written, a sentence each; empty if it is current.
        write: fills the directory that takes its place.
        marker: name of a file; a directory that holds other files, and not this one, is not replaced.

    Returns:
        why it was written here; empty if it was not.

    Raises:
        InvalidInput: ``target`` is a file, or holds something else.
    """
    if not stale():
        return []
    with _only_writer(target):
        reasons = stale()
        if reasons:
            with _replacement(target, marker is None or (target / marker).is_file()) as building:
                write(building)
        return reasons


@contextmanager
def _only_writer(target: Path) -> Iterator[None]:
    target.parent.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(target.with_name(f".{target.name}.lock"), remove=True):
        yield


@contextmanager
def _replacement(target: Path, force: bool) -> Iterator[Path]:
    if target.exists() and not target.is_dir():
        raise InvalidInput("directory", str(target), "exists and is not a directory")
    if not force and target.is_dir() and any(target.iterdir()):
        raise InvalidInput("directory", str(target), "is not empty")
    building = target.with_name(f".{target.name}.building")
    if building.exists():  # of a writer that was killed
        shutil.rmtree(building)
    try:
        building.mkdir()
        building.chmod(0o755)
        yield building
        if target.exists():
            shutil.rmtree(target)
        building.rename(target)
    finally:
        shutil.rmtree(building, ignore_errors=True)
