"""The processes of one server, read from /proc."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

STUB = "triton_python_backend_stub"
ENDED = "ZX"
"""The states of a process that has ended: a zombie, or dead (proc(5))."""


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    session: int
    command: tuple[str, ...]

    @property
    def model(self) -> str | None:
        """The model whose code this process runs (``<repository>/<model>/<version>/model.py``)."""
        if not self.command or Path(self.command[0]).name != STUB:
            return None
        parts = Path(*self.command[1:2]).parts  # A process that is starting or ending has no arguments.
        return parts[-3] if len(parts) >= 3 else None


def living() -> list[Process]:
    """All processes that have not ended."""
    found = (_read(int(folder.name)) for folder in Path("/proc").glob("[0-9]*"))
    return [process for process in found if process is not None]


def is_alive(pid: int) -> bool:
    """Whether a process has not ended; one that is ending has an empty command, but may hold its sockets."""
    process = _read(pid)
    return process is not None and process.command != ("",)


def _read(pid: int) -> Process | None:
    """A process; None if it has ended, or /proc hides it (``hidepid``)."""
    folder = Path(f"/proc/{pid}")
    try:
        stat = (folder / "stat").read_text()
        command = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    state, parent, _, session = stat.rpartition(")")[2].split()[:4]
    if state in ENDED:
        return None
    return Process(pid, int(parent), int(session), tuple(command))


def session_members(session: int) -> list[Process]:
    return [process for process in living() if process.session == session]
