"""A server of this machine from outside: what its processes hold, and how one of them is killed."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cosyvoice_runtime.process.processes import Process, living, session_members

SHARED_MEMORY = Path("/dev/shm")
LISTENS = "0A"
"""State of a socket in ``/proc/net/tcp``."""
REGION_PREFIX = "--backend-config=python,shm-region-prefix-name="
MOST_GROWTH = 1.15
"""From the second third of a run to the last: more is a leak."""


@dataclass(frozen=True)
class Holding:
    """Sums of what all processes of a server hold; memory in MiB."""

    memory_mib: float
    threads: int
    descriptors: int
    shared_mib: float


class ServerProcesses:
    """The tritonserver behind a port of this machine, and its models.

    Args:
        port: where its gateway listens, which has the same parent.

    Raises:
        LookupError: there is none.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._server()

    def holding(self) -> Holding:
        """The sums that they hold now."""
        server = self._server()
        pids = [process.pid for process in session_members(server.session)]
        [prefix] = [word.removeprefix(REGION_PREFIX) for word in server.command if REGION_PREFIX in word]
        return held_by(pids, [prefix])

    def kill(self, model: str) -> None:
        """End a model's process, as a fault of it would."""
        for process in session_members(self._server().session):
            if process.model == model:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)

    def models(self) -> list[str]:
        """Names of the models that have a process."""
        found = {process.model for process in session_members(self._server().session)}
        return sorted(model for model in found if model)

    def _server(self) -> Process:
        """Looked up each time: a server that was started anew is another process."""
        sockets = _listening(self._port)
        processes = living()
        parents = {process.parent for process in processes if sockets & _open_files(process.pid)}
        for process in processes:
            if process.parent in parents and Path(process.command[0]).name == "tritonserver":
                return process
        raise LookupError(f"no tritonserver of this machine is behind port {self._port}")


def held_by(pids: Sequence[int], prefixes: Sequence[str]) -> Holding:
    """The sums that processes hold, with the regions of shared memory whose names begin so."""
    regions = [region for prefix in prefixes for region in SHARED_MEMORY.glob(f"{prefix}*")]
    return Holding(
        round(sum(map(_memory_mib, pids)), 1),
        sum(len(_entries(pid, "task")) for pid in pids),
        sum(len(_entries(pid, "fd")) for pid in pids),
        round(sum(map(_blocks, regions)) / 2048, 1),
    )


def descendants(pid: int) -> list[Process]:
    """A process and all that it, or one of them, has started; parents come first."""
    processes = living()
    found = [each for each in processes if each.pid == pid]
    for parent in found:
        found += [each for each in processes if each.parent == parent.pid]
    return found


def memory_by_process(pid: int) -> dict[str, dict[str, float]]:
    """MiB of these processes by name: ``pss``, a share of what they share with others, ``rss``, and ``most``.

    The last is ``pss`` and how much more the process once held than now.
    """
    found: dict[str, dict[str, float]] = {}
    for process in descendants(pid):
        held = found.setdefault(name_of(process), {"pss": 0.0, "rss": 0.0, "most": 0.0})
        pss, rss = (_kib(f"/proc/{process.pid}/smaps_rollup", kind) for kind in ("Pss", "Rss"))
        most = pss + max(_kib(f"/proc/{process.pid}/status", "VmHWM") - rss, 0)
        for kind, kib in (("pss", pss), ("rss", rss), ("most", most)):
            held[kind] += round(kib / 1024, 1)
    return found


def name_of(process: Process) -> str:
    """The model, or what the command line says: a module, with a gateway's protocol."""
    if process.model:
        return process.model
    if "-m" not in process.command:
        return Path(process.command[0]).name
    module = process.command.index("-m") + 1
    [protocol] = [word for word in process.command[module + 1 :] if word in ("grpc", "http")][:1] or [""]
    return f"{process.command[module].removeprefix('cosyvoice_runtime.')} {protocol}".strip()


def cpu_seconds(process: Process) -> float:
    """Time that a process, and those that it has waited for, have computed."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def growths(series: Sequence[Holding]) -> list[str]:
    """Growth from the second third of the series to the last, beyond what may be chance.

    The most counts: a server that is being started anew holds little.
    """
    third = len(series) // 3
    if not third:
        return []
    found = []
    for name in ("memory_mib", "threads", "descriptors", "shared_mib"):
        values = [getattr(holding, name) for holding in series]
        before, after = max(values[third : 2 * third]), max(values[2 * third :])
        if after > MOST_GROWTH * before:
            found.append(f"{name} grew from {before:g} to {after:g}")
    return found


def _memory_mib(pid: int) -> float:
    """Resident memory."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _blocks(path: Path) -> int:
    try:
        return path.stat().st_blocks
    except FileNotFoundError:  # Its server has ended.
        return 0


def _kib(path: str, field: str) -> int:
    [kib] = re.findall(rf"^{field}:\s+([0-9]+) kB$", Path(path).read_text(), re.MULTILINE)
    return int(kib)


def _entries(pid: int, folder: str) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/{folder}")
    except OSError:  # it ended, or is somebody else's
        return []


def _open_files(pid: int) -> set[str]:
    found = set()
    for number in _entries(pid, "fd"):
        with suppress(OSError):  # closed meanwhile
            found.add(os.readlink(f"/proc/{pid}/fd/{number}"))
    return found


def _listening(port: int) -> set[str]:
    """Sockets that listen on a port, as the links of those who have them open."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTENS and int(words[1].rpartition(":")[2], 16) == port:
                found.add(f"socket:[{words[9]}]")
    return found
