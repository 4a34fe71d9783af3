"""The shared memory between a server and its models."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

DIRECTORY = Path("/dev/shm")


def new_prefix() -> str:
    """Start of the names of one server's regions, different from every other server's."""
    return f"cosyvoice_{os.getpid()}_{uuid.uuid4().hex[:8]}_"


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
