"""What a supervisor left behind."""

from __future__ import annotations

import os

from cosyvoice_runtime.process import processes
from cosyvoice_runtime.supervisor.preflight import SHARED_MEMORY

BEFORE = {*SHARED_MEMORY.iterdir()}
"""Files that earlier runs left, which may have had the same process ids."""


def leftovers(supervisor_pid: int | None = None) -> list[str]:
    """Processes, shared memory and temporary folders of the servers of one process, by default this one."""
    pid = supervisor_pid or os.getpid()
    mark = f"cosyvoice_{pid}_"  # in the command of the server and of its models
    running = [process for process in processes.living() if mark in " ".join(process.command)]
    files = {*SHARED_MEMORY.glob(f"{mark}*"), *SHARED_MEMORY.glob(f"cosyvoice-server-{pid}-*")}
    return [*map(str, running), *map(str, files - BEFORE)]
