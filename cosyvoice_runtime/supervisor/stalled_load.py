"""A load that Triton has given up without an end.

A model's process that is silent for a second while it starts, as on a machine with more work than cores,
counts as dead for Triton (python_backend 24.10, ``StubLauncher::ReceiveMessageFromStub``). Triton then waits
for the end of that process before it tells anybody (``StubLauncher::Launch``, ``WaitForStubProcess``), but
the process lives and waits for Triton. Every later load waits behind this one.
"""

from __future__ import annotations

import os
import platform
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from cosyvoice_runtime import processes

WAIT4 = {"x86_64": "61", "aarch64": "260"}.get(platform.machine())
"""Number of the system call that waits for the end of a process."""
LOOK_INTERVAL_S = 1.0
PATIENCE_S = 5.0
"""A process that is ending may be waited for as long as it likes; one that lives on for this long is not."""


class StalledLoad:
    """Ends the process that such a load waits for: then Triton tells that the load has failed.

    Args:
        server: process id of tritonserver.
        model: what is being loaded.

    Attributes:
        ended: whether a process was ended.
    """

    def __init__(self, server: int, model: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.ended = False
        self._server = server
        self._model = model
        self._clock = clock
        self._next_look = 0.0
        self._awaited: dict[int, float] = {}

    def look(self) -> None:
        """To be called again and again while the load is waited for."""
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_INTERVAL_S
        seen = awaited_processes(self._server, self._model)
        self._awaited = {pid: self._awaited.get(pid, now) for pid in seen}
        for pid, since in self._awaited.items():
            if now - since >= PATIENCE_S:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                self.ended = True


def awaited_processes(server: int, model: str) -> list[int]:
    """Living processes of a model for whose end the server waits; none where /proc doesn't tell."""
    awaited = set()
    for thread in Path(f"/proc/{server}/task").glob("*/syscall"):
        with suppress(OSError):  # the thread has ended, or this process may not look into others
            number, *arguments = thread.read_text().split()
            if number == WAIT4:
                awaited.add(int(arguments[0], 16))
    return [
        process.pid for process in processes.living() if process.pid in awaited and process.model == model
    ]
