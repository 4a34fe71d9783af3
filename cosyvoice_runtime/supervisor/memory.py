"""The memory that several servers of one machine take together."""

from __future__ import annotations

import re
from pathlib import Path

from cosyvoice_runtime.supervisor.preflight import NEEDED_SHARED_MIB, SHARED_MEMORY, free_shared_mib

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
SERVER_MIB = 700
"""The memory of one server's processes without their weights, as measured with the demo voice."""


def memory_problems(servers: int, checkpoint: str) -> list[str]:
    """The reasons why so many servers of a checkpoint would be short of memory, one sentence each.

    Args:
        checkpoint: its directory; empty for models without one.
    """
    each = SERVER_MIB + (_size_mib(Path(checkpoint)) if checkpoint else 0)
    problems = []
    if (free := free_mib()) < servers * each:
        needed = f"{servers} servers need {servers * each} MiB of memory, {each} each"
        problems.append(f"{needed}, and {free} are free: start fewer, or end what takes it")
    if (shared := free_shared_mib()) < servers * NEEDED_SHARED_MIB:
        needed = f"{shared} MiB free and {servers} servers need {servers * NEEDED_SHARED_MIB}"
        problems.append(f"{SHARED_MEMORY} has {needed}: enlarge it (docker: --shm-size)")
    return problems


def free_mib() -> int:
    """The memory that processes may still take, of the machine and of a container's limit."""
    [available] = re.findall(r"^MemAvailable: *(\d+) kB$", MEMINFO.read_text(), re.MULTILINE)
    return min(int(available) // 2**10, _free_of_limit_mib())


def _free_of_limit_mib() -> int:
    try:
        limit = int((CGROUP / "memory.max").read_text())
        taken = int((CGROUP / "memory.current").read_text())
        [cached] = re.findall(r"^file (\d+)$", (CGROUP / "memory.stat").read_text(), re.MULTILINE)
    except (OSError, ValueError):  # There is no limit: the file is missing, or says "max".
        return 2**40
    return (limit - taken + int(cached)) // 2**20


def _size_mib(checkpoint: Path) -> int:
    return sum(path.stat().st_size for path in checkpoint.rglob("*") if path.is_file()) // 2**20
