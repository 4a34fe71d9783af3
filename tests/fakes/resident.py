"""What this process holds in memory."""

from __future__ import annotations

import os
from pathlib import Path


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def resident_mib() -> float:
    return resident_bytes() / 2**20
