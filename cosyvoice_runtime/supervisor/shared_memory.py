"""The shared memory between a server and its models, and the folder of a server's run in it."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

DIRECTORY = Path("/dev/shm")


def new_directory() -> Path:
    """A name for the folder of one server's run, which is not made here.

    Temporary folders are cleaned of what is old, and a server runs for months. Shared memory is not cleaned,
    every server needs it, and its path holds nothing that a shell would act upon.
    """
    return DIRECTORY / f"cosyvoice-server-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def region_prefix(run_dir: Path) -> str:
    """Start of the names of a run's regions, different from every other run's."""
    return f"{run_dir.name.replace('-server', '').replace('-', '_')}_"


def regions(prefix: str) -> list[Path]:
    return sorted(DIRECTORY.glob(f"{prefix}*"))


def free_mib() -> int:
    status = os.statvfs(DIRECTORY)
    return status.f_bavail * status.f_frsize // 2**20
