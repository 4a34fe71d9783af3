"""Where and from what a figure was measured."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def provenance() -> dict[str, Any]:
    """Time, commit, command and machine."""
    return {
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": commit_of(ROOT),
        "command": shlex.join([Path(sys.executable).name, *sys.argv]),
        "machine": {
            "cpu": _cpu(),
            "cores": len(os.sched_getaffinity(0)),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
            "gpus": _lines(
                "nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"
            ),
            "system": platform.platform(),
            "python": platform.python_version(),
        },
    }


def commit_of(checkout: Path) -> str | None:
    """The commit of a checkout, marked where files differ from it; None outside a repository."""
    lines = _lines("git", "-C", str(checkout), "rev-parse", "HEAD")
    if not lines:
        return None
    changed = _lines("git", "-C", str(checkout), "status", "--porcelain")
    return lines[0] + (" with changes" if changed else "")


def _cpu() -> str:
    names = [
        line.split(":", 1)[1].strip() for line in _read("/proc/cpuinfo") if line.startswith("model name")
    ]
    return names[0] if names else platform.processor() or platform.machine()


def _read(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def _lines(*command: str) -> list[str]:
    """Lines a program prints; none if it is absent or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []
