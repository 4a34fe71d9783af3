"""The shared memory between a server and its models, and the folder of a server's run in it."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

DIRECTORY = Path("/dev/shm")


def new_prefix() -> str:
    """Start of the names of one server's regions, different from every other server's."""
    return f"cosyvoice_{os.getpid()}_{uuid.uuid4().hex[:8]}_"


def new_directory() -> Path:
    """A name for the folder of one server's run, which is not made here.

    Temporary folders are cleaned of what is old, and a server runs for months. Shared memory is not cleaned,
    every server needs it, and its path holds nothing that a shell would act upon.
    """
    return DIRECTORY / f"cosyvoice-server-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def regions(prefix: str) -> list[Path]:
    return sorted(DIRECTORY.glob(f"{prefix}*"))


def sweep(prefix: str) -> int:
    """Remove the regions that a dead server left; returns how many."""
    left = regions(prefix)
    for region in left:
        region.unlink(missing_ok=True)
    return len(left)


def free_mib() -> int:
    status = os.statvfs(DIRECTORY)
    return status.f_bavail * status.f_frsize // 2**20
