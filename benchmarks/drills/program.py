"""A process of the fleet, with all that may happen to one."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from measuring.server_processes import descendants

START_S = 300.0
STOP_S = 300.0
LOOK_S = 0.02


class Program:
    """Starts, stops, freezes and kills a command, together with all processes that it has started.

    Attributes:
        name: of its log, in messages, too.
        process: the command's own process, while it runs.
    """

    def __init__(self, name: str, folder: Path, command: Sequence[str | Path]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None
        self._command = [str(word) for word in command]
        self._log = folder / f"{name}.log"
        self._told_before = 0

    def answers(self) -> bool:
        """Whether it does what it was started for."""
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        """Variables of the process."""
        return os.environ

    def begin(self) -> None:
        """Start it, without waiting until it answers."""
        assert not self.running, f"{self.name} runs already"
        self._told_before = len(self._log.read_bytes()) if self._log.exists() else 0
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder, env=self.environment()
            )

    def wait(self) -> None:
        """Return as soon as it answers."""
        deadline = time.monotonic() + START_S
        while not self.answers():
            assert self.running, f"{self.name} has ended: {self.told()}"
            assert time.monotonic() < deadline, f"{self.name} doesn't answer: {self.told()}"
            time.sleep(LOOK_S)

    def start(self) -> None:
        self.begin()
        self.wait()

    def terminate(self) -> None:
        """Send SIGTERM, and don't wait."""
        assert self.process is not None
        self.process.terminate()

    def stop(self) -> None:
        """End it by SIGTERM, however long it takes to end what it does."""
        self.terminate()
        self.join()

    def join(self) -> None:
        """Return when it has ended."""
        assert self.process is not None
        self.process.wait(STOP_S)

    def restart(self) -> None:
        self.stop()
        self.start()

    def freeze(self) -> None:
        """Send SIGSTOP to all its processes: its connections stay open, and nothing answers."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Send SIGKILL to all its processes: none of them sees another end."""
        self.freeze()
        self._signal(signal.SIGKILL)
        self.join()

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def told(self) -> str:
        """Return what it has said since it was started last."""
        return self._log.read_bytes()[self._told_before :].decode(errors="replace")

    def close(self) -> None:
        """End it in whatever state it is."""
        if self.running:
            self.kill()

    def _signal(self, number: signal.Signals) -> None:
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def pids(self) -> list[int]:
        """Its process and all below it, parents first; none if it has ended."""
        assert self.process is not None
        return [each.pid for each in descendants(self.process.pid)]
