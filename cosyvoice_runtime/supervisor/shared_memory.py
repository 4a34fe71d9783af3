"""The shared memory of a server, and the run folder in it."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

DIRECTORY = Path("/dev/shm")


def new_directory() -> Path:
    """A new name for the folder of a server's run; the folder is not created.

    Temporary folders are cleaned of what is old, and a server runs for months. Shared memory is not cleaned,
    every server needs it, and its path holds nothing that a shell would act upon.
    """
    return DIRECTORY / f"cosyvoice-server-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def region_prefix(run_dir: Path) -> str:
    """The name prefix of a run's regions, unique to the run."""
    return f"{run_dir.name.replace('-server', '').replace('-', '_')}_"


def regions(prefix: str) -> list[Path]:
    return sorted(DIRECTORY.glob(f"{prefix}*"))


def free_mib() -> int:
    status = os.statvfs(DIRECTORY)
    return status.f_bavail * status.f_frsize // 2**20
